"""How do stragglers and dropped jobs affect SHA and ASHA? Appendix A.1 of the ASHA paper, simulated with Hopyard's policies.

    python benchmarks/asha_stragglers.py [--repeats 25] [--deviations 0,0.1,0.24,0.56,1.33] [--drops 0,0.001,...,0.005]
        [--modes scratch,resumed] [--time 2000] [--slots 25] [--jobs N] [--output results.json] [--plot FOLDER] [--json]

eta is 4, r 1, R 256, s 0. Brackets of SHA start with n = 256 configurations, and a new bracket starts when a slot would be idle; ASHA
has one bracket without a limit. A job takes one second per position, times 1 + |z|, where z is normal with the given standard
deviation. In each second a job is dropped with the given probability, and then queued again. A configuration has one random value,
which it reports at each rung. Each cell of the results is one combination of mode, deviation, probability and algorithm. Its figures
are means over the repeats: the number of configurations trained to R in 2000 s, and the time at which the first one was. A search that
trained none to R counts with 2000 s; then the mean is shown with `>`, and is too low.

* scratch: the paper's simulation. Each rung is a separate job, which trains from the beginning.
* resumed: Hopyard's behaviour. A job resumes from its snapshot, or continues in memory if it is promoted at once. It reports and saves
  after each position, which is the default, so a dropped run trains only its last position again.

SHA and ASHA see the same values in the same repeat. In `scratch` the simulated jobs report only at rungs, which gives the same times as
one report per position. A whole table consists of 3000 searches with about 100,000 events each, which takes hours of CPU time; all CPUs
are used. `--output` is written after each search, and searches in it are not repeated, so the same command continues after an
interruption. Each cell gets its first repeat before any gets its second. `--plot` draws both modes like Figure 7 of the paper.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal, TypeVar, overload

from hopyard.policy import CONTINUE, Cluster, Decision, IterationFinish, Policy
from hopyard_policies.halving import AshaPolicy, ShaPolicy
from hopyard_simulator import Faults, simulate
from hopyard_simulator.workload import Lesson, Workload

ETA, R, N = 4, 256, 256
RUNGS = (1, 4, 16, 64, 256)
ENDLESS = 1_000_000

T = TypeVar("T")


class Numbers(Sequence[Mapping[str, Any]]):
    """A practically endless sequence of configurations; configuration i is {"number": i}."""

    def __len__(self) -> int:
        return ENDLESS

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if isinstance(index, slice):
            return [{"number": number} for number in range(*index.indices(ENDLESS))]
        return {"number": index}


class RandomValues(Workload):
    """A workload in which each configuration has one random value, which it always reports, and takes one second per position.

    Args:
        seed: Seed of the values.
        positions: The positions of the reports.
    """

    mode: Literal["max", "min"] = "min"
    max_position = R

    def __init__(self, seed: int, positions: Sequence[int]) -> None:
        self._seed = seed
        self._positions = positions
        self._seconds = [float(end - start) for start, end in pairwise([0, *positions])]
        self._lessons: dict[int, Lesson] = {}

    def configurations(self, order_seed: int | None) -> Sequence[Mapping[str, Any]]:
        return Numbers()

    def lesson(self, hyperparameters: Mapping[str, Any]) -> Lesson:
        number = hyperparameters["number"]
        if number not in self._lessons:
            value = random.Random(f"{self._seed}/{number}").random()
            self._lessons[number] = Lesson([value] * len(self._positions), self._seconds, self._positions)
        return self._lessons[number]


class AshaApart(AshaPolicy):
    """ASHA in which a job leaves its slot at each rung, as in the paper's simulation."""

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE


class ShaApart(ShaPolicy):
    """SHA in which a job leaves its slot at each rung, as in the paper's simulation."""

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE


POLICIES: Mapping[tuple[str, str], tuple[Callable[..., Policy], Mapping[str, Any]]] = {
    ("SHA", "scratch"): (ShaApart, {"width": N}),
    ("ASHA", "scratch"): (AshaApart, {"brackets": [0]}),
    ("SHA", "resumed"): (ShaPolicy, {"width": N}),
    ("ASHA", "resumed"): (AshaPolicy, {"brackets": [0]}),
}
ALGORITHMS = ("SHA", "ASHA")
MODES = ("scratch", "resumed")


Reached = tuple[int, float | None]
"""Number of configurations trained to R, and the time in seconds at which the first one was; None: none was."""


@dataclass(frozen=True)
class Search:
    """The parameters of one simulated search."""

    mode: str
    deviation: float
    drop: float
    algorithm: str
    seed: int
    slots: int
    time: float


def run(search: Search) -> Reached:
    """Simulate a search. Return the number of configurations trained to R and the time of the first one; see `Reached`."""
    policy, parameters = POLICIES[search.algorithm, search.mode]
    result = simulate(
        RandomValues(search.seed, RUNGS if search.mode == "scratch" else range(1, R + 1)),
        policy,
        slots=search.slots,
        parameters={**parameters, "max_losses": ENDLESS},
        max_time=search.time,
        seed=search.seed,
        faults=Faults(straggling=search.deviation, drop=search.drop),
        from_scratch=search.mode == "scratch",
    )
    times = [at for at, _ in result.jobs_at_R if at <= search.time]  # Runs may report after the end.
    return len(times), min(times, default=None)


def run_all(searches: Sequence[Search], jobs: int, finished: Callable[[Search, Reached], None]) -> None:
    """Run searches in `jobs` processes, in their order. Call `finished` with each search and its result."""
    began = time.monotonic()
    with ProcessPoolExecutor(jobs) as pool:
        futures = {pool.submit(run, search): search for search in searches}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                finished(futures[future], future.result())
                of = len(searches)
                if done == of or done * 20 // of > (done - 1) * 20 // of:
                    print(f"{done} of {of} searches, {time.monotonic() - began:.0f} s", file=sys.stderr)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def document(results: Mapping[Search, Reached], settings: Mapping[str, Any]) -> str:
    """Return the JSON document with the cells and the searches of the results so far."""
    searches = [[*astuple(search), *reached] for search, reached in results.items()]
    return json.dumps({"settings": settings, "cells": cells(results), "searches": searches})


def earlier(output: Path, settings: Mapping[str, Any]) -> dict[Search, Reached]:
    """Return the results that an output file contains; empty if the file does not exist.

    Raises:
        ValueError: The file has other settings, or is no output of this benchmark.
    """
    if not output.exists():
        return {}
    try:
        found = json.loads(output.read_text())
        if found["settings"] != settings:
            raise ValueError(f"it was made with {found['settings']}, and these are {dict(settings)}")
        return {Search(*row[:-2]): (row[-2], row[-1]) for row in found["searches"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{output} is not of this benchmark; give another file: {error!r}") from error


def cells(results: Mapping[Search, Reached]) -> list[dict[str, Any]]:
    """Return a row of means for each combination of mode, deviation, probability and algorithm."""
    groups: dict[tuple[str, float, float, str], list[tuple[Reached, float]]] = {}
    for search, reached in results.items():
        key = (search.mode, search.deviation, search.drop, search.algorithm)
        groups.setdefault(key, []).append((reached, search.time))
    found = []
    for (mode, deviation, drop, algorithm), group in groups.items():
        counts = [count for (count, _), _ in group]
        firsts = [first if first is not None else limit for (_, first), limit in group]
        found.append(
            {
                "mode": mode,
                "deviation": deviation,
                "drop": drop,
                "algorithm": algorithm,
                "repeats": len(group),
                "at_R": statistics.fmean(counts),
                "at_R_error": _error(counts),
                "first": statistics.fmean(firsts),
                "first_error": _error(firsts),
                "never": sum(first is None for (_, first), _ in group),
            }
        )
    return found


def _error(values: Sequence[float]) -> float:
    """Return the standard error of the mean."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def show(found: Sequence[Mapping[str, Any]]) -> None:
    by = {(c["mode"], c["deviation"], c["drop"], c["algorithm"]): c for c in found}
    for mode in dict.fromkeys(c["mode"] for c in found):
        print(f"\n{mode}: configurations trained to R, and when the first one was (s)")
        print(f"{'std':>5} {'drop':>7} {'SHA':>13} {'ASHA':>13} {'ASHA/SHA':>9} {'first SHA':>14} {'first ASHA':>14}")
        for deviation, drop in dict.fromkeys((c["deviation"], c["drop"]) for c in found if c["mode"] == mode):
            sha, asha = (by[mode, deviation, drop, name] for name in ALGORITHMS)
            ratio = f"{asha['at_R'] / sha['at_R']:.2f}x" if sha["at_R"] else "-"
            counts = " ".join(f"{c['at_R']:7.1f} ±{c['at_R_error']:4.1f}" for c in (sha, asha))
            firsts = " ".join(
                f"{'>' if c['never'] else ''}{c['first']:.0f}".rjust(8) + f" ±{c['first_error']:4.0f}"
                for c in (sha, asha)
            )
            print(f"{deviation:5g} {drop:7g} {counts} {ratio:>9} {firsts}")


def plot(found: Sequence[Mapping[str, Any]], folder: Path, limit: float) -> None:
    """Draw a figure per mode, with a column per deviation: above the number of configurations trained to R, below the first time."""
    from matplotlib.figure import Figure

    from hopyard.plots.figures import theme

    folder.mkdir(parents=True, exist_ok=True)
    with theme.applied():
        for mode in dict.fromkeys(c["mode"] for c in found):
            mine = [c for c in found if c["mode"] == mode]
            deviations = list(dict.fromkeys(c["deviation"] for c in mine))
            figure = Figure(figsize=(1.9 * len(deviations) + 0.5, 4.4))
            axes = figure.subplots(2, len(deviations), sharex=True, sharey="row", squeeze=False)
            for column, deviation in enumerate(deviations):
                for index, name in enumerate(ALGORITHMS):
                    some = sorted(
                        (c for c in mine if c["algorithm"] == name and c["deviation"] == deviation),
                        key=lambda c: c["drop"],
                    )
                    style = theme.style_of(1 - index)
                    for row, key in enumerate(("at_R", "first")):
                        axes[row][column].errorbar(
                            [1e3 * c["drop"] for c in some],
                            [c[key] for c in some],
                            yerr=[c[f"{key}_error"] for c in some],
                            color=style.color, linestyle=style.line, marker=style.marker, markersize=3.5, capsize=1.5,
                            elinewidth=0.7, label=name,
                        )  # fmt: skip
                axes[0][column].set_title(f"std {deviation:g}")
                axes[1][column].set_xlabel("drops in 1000 s")
            for row in axes:
                row[0].set_ylim(bottom=0.0)  # Last: a limit that is set no longer adapts to data.
            axes[0][0].set_ylabel(f"trained to R in {limit:g} s")
            axes[1][0].set_ylabel("first trained to R [s]")
            axes[0][0].legend(loc="lower left")
            path = folder / f"stragglers-{mode}.svg"
            figure.savefig(path, metadata={"Date": None})
            print(path, file=sys.stderr)


def listed(kind: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Return a function that converts comma-separated text to a list, for argparse; `kind` converts each part."""

    def read(text: str) -> list[T]:
        return [kind(part) for part in text.split(",")]

    read.__name__ = f"list of {kind.__name__}"
    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--repeats", type=int, default=25, metavar="N", help="searches of each cell [default: 25]")
    add("--deviations", type=listed(float), default="0,0.1,0.24,0.56,1.33", metavar="STD,...")
    add("--drops", type=listed(float), default="0,0.001,0.002,0.003,0.004,0.005", metavar="P,...")
    add("--modes", type=listed(str), default="scratch,resumed", metavar="MODE,...", help="[default: scratch,resumed]")
    add("--time", type=float, default=2000.0, metavar="SECONDS", help="virtual time [default: 2000]")
    add("--slots", type=int, default=25, metavar="N")
    add("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes [default: as many as CPUs]")
    add("--output", type=Path, metavar="FILE", help="where the cells go, as JSON; goes on with what is there")
    add("--plot", type=Path, metavar="FOLDER", help="where plots go")
    add("--json", action="store_true", help="print the cells as JSON instead of the table")
    given = parser.parse_args()
    if unknown := sorted(set(given.modes) - set(MODES)):
        parser.error(f"--modes: there is no {', '.join(unknown)}; there are: {', '.join(MODES)}")
    searches = [
        Search(mode, deviation, drop, algorithm, seed, given.slots, given.time)
        for seed, mode, deviation, drop, algorithm in product(
            range(given.repeats), given.modes, given.deviations, given.drops, ALGORITHMS
        )
    ]
    settings = {"eta": ETA, "r": RUNGS[0], "R": R, "n": N, "slots": given.slots, "time": given.time}
    try:
        known = earlier(given.output, settings) if given.output is not None else {}
    except ValueError as error:
        parser.error(f"--output: {error}")

    def finished(search: Search, reached: Reached) -> None:
        known[search] = reached
        if given.output is not None:
            partial = given.output.with_name(given.output.name + ".part")
            partial.write_text(document(known, settings))
            partial.replace(given.output)

    run_all([search for search in searches if search not in known], given.jobs, finished)
    results = {search: known[search] for search in searches}
    if given.json:
        print(document(results, settings))
    else:
        show(cells(results))
    if given.plot is not None:
        plot(cells(results), given.plot, given.time)


if __name__ == "__main__":
    main()
