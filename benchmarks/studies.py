"""How much do overlapping studies save by training common parts together? The multi-study part of the Hippo paper.

    python benchmarks/studies.py [--families high,low] [--studies 1,2,4,8] [--modes later,once] [--output FILE] [--plot FILE]

There are eight studies with 144 trials each (12 sequences of the learning rate x 12 of the batch size) in two families: one that merges
well and one that does not (Hippo, section 6.2). `q` is the k-wise merge rate of the first K studies: all their positions divided by the
number of different ones, computed from the configurations alone. The studies are simulated with the core and the policies of the live
cluster:

* `trials`: the baseline, all K studies at the same time, trial by trial (policy `default`);
* `later`: one study after another; each one reuses what the previous ones have trained, as in a data directory that is opened again;
* `once`: all K studies at the same time, as a group with one search plan.

`hours` are slot-hours and `time` is virtual time, both in epochs; a position is five epochs. A snapshot, and a start from one, take a
part of an epoch. Runs save only where they end and where trials branch off; with `later` also at each position. `executed` is what was
trained, and `unique` what must be trained, in positions. The two must be equal, and the slot-hours must be lower by a factor of at
least 0.98 q; otherwise the violations are printed and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from hopyard.sequences import PrefixTree, Request
from hopyard_engine.core.types import EarlierTrial
from hopyard_simulator import Costs, CurveWorkload, JoiningExperiment, Result, named, simulate

EPOCHS: Final = 5
"""Number of epochs in a position."""

SAVES: Final[Mapping[str, int]] = {"snapshot_every": 0}
"""Runs save only where they end, where trials branch off, and with `save_every`."""

END: Final = 24
SIDE: Final = 12
NEAR: Final = 0.98
"""The slot-hours must be lower by at least this part of q."""

RATES: Final = (
    *(0.3, 0.25, 0.2, 0.16, 0.12, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.025, 0.02, 0.016, 0.012, 0.01),
    *(0.4, 0.5, 0.008, 0.006, 0.005, 0.6, 0.7, 0.8),
)

Configuration = Mapping[str, Any]


class Family(NamedTuple):
    """The values from which the studies of a family are drawn.

    Attributes:
        rates: Number of learning rates.
        steps: Positions at which the learning rate changes.
        batches: First batch sizes.
        switches: Positions at which the batch size changes.
        shapes: For each study, the number of its learning rates and of its first batch sizes; each makes 12 sequences.
        seed: Seed of the draw.
    """

    rates: int
    steps: range
    batches: tuple[int, ...]
    switches: range
    shapes: tuple[tuple[int, int], ...]
    seed: int


FAMILIES: Final = {
    "high": Family(
        10, range(8, 23, 2), (32, 64, 128), range(6, 24), ((4, 3), (3, 2), (6, 2), (4, 2), (6, 3), (4, 2), (3, 3), (6, 2)), 1
    ),
    "low": Family(
        24, range(2, 21, 2), (32, 64, 128, 256), range(2, 21), ((6, 2), (4, 2), (6, 3), (12, 2), (4, 3), (6, 2), (12, 2), (6, 2)), 0
    ),
}  # fmt: skip


def studies(name: str) -> list[list[Configuration]]:
    """Return the eight studies of a family, each with 144 configurations."""
    family = FAMILIES[name]
    found: list[list[Configuration]] = []
    for number, (rates, batches) in enumerate(family.shapes):
        rng = random.Random(f"{name}/{family.seed}/{number}")
        steps = sorted(rng.sample(family.steps, SIDE // rates))
        switches = sorted(rng.sample(family.switches, SIDE // batches))
        learning = [_changing(lr, lr / 10, at) for lr in rng.sample(RATES[: family.rates], rates) for at in steps]
        sizes = [_changing(size, 2 * size, at) for size in rng.sample(family.batches, batches) for at in switches]
        found.append([{"lr": lr, "batch_size": size} for lr in learning for size in sizes])
    return found


def _changing(before: float, after: float, at: int) -> Mapping[str, Any]:
    return {"sequence": {"multi_step": {"milestones": [at], "values": [before, after]}}}


@dataclass(frozen=True)
class Merge:
    """The positions of several studies: their total number, and the number of different ones."""

    total: int
    unique: int

    @property
    def rate(self) -> float:
        """The k-wise merge rate."""
        return self.total / self.unique


def merge(given: Sequence[Sequence[Configuration]]) -> Merge:
    """Return the positions of studies taken together."""
    tree = PrefixTree(Request(each, END) for study in given for each in study)
    return Merge(tree.total, tree.unique)


@dataclass
class Row:
    """The result of K studies in one mode; see the module for the figures."""

    family: str
    studies: int
    mode: str
    q: float
    unique: int
    executed: int
    hours: float
    time: float
    simulated_in: float


def workload(configurations: Sequence[Configuration]) -> CurveWorkload:
    """Return a workload with these configurations; the values of its metric have no influence on a grid search."""
    return CurveWorkload(lambda _given, position: position / END, configurations, END, seconds=float(EPOCHS))


def measure(family: str, counts: Sequence[int], mode: str, slots: int, costs: Costs) -> Iterator[Row]:
    """Yield one row for the first K studies of a family, for each K in `counts`."""
    given = studies(family)
    runs = _later if mode == "later" else _each
    begun = time.process_time()
    for count, executed, hours, elapsed in runs(given, counts, mode, slots, costs):
        found = merge(given[:count])
        yield Row(family, count, mode, found.rate, found.unique, executed, hours, elapsed, time.process_time() - begun)


def _later(
    given: Sequence[Sequence[Configuration]], counts: Sequence[int], mode: str, slots: int, costs: Costs
) -> Iterator[tuple[int, int, float, float]]:
    """Simulate one study after another. Each position is saved, because the branches of later studies are not known yet.

    Yields:
        For each number of studies: the number, and the executed positions, slot-hours and time until then.
    """
    past: tuple[EarlierTrial, ...] = ()
    executed, hours, elapsed = 0, 0.0, 0.0
    for number, study in enumerate(given[: max(counts)], 1):
        terms = {"save_every": 1, **SAVES}
        found = simulate(
            workload(study), "stage_tree", slots=slots, costs=costs, parameters=terms, earlier=past, details=True
        )
        past += named(found.trained or (), f"study-{number}")
        executed, hours, elapsed = executed + found.iterations, hours + found.job_seconds, elapsed + found.time
        if number in counts:
            yield number, executed, hours, elapsed


def _each(
    given: Sequence[Sequence[Configuration]], counts: Sequence[int], mode: str, slots: int, costs: Costs
) -> Iterator[tuple[int, int, float, float]]:
    """Simulate all studies at once, as a group with one search plan or trial by trial. Yields as `_later`."""
    for count in counts:
        if mode == "once":
            group = [JoiningExperiment(study) for study in given[1:count]]
            found = simulate(workload(given[0]), "stage_tree", slots=slots, costs=costs, group=group, parameters=SAVES)
        else:
            found = _alone([each for study in given[:count] for each in study], slots, costs)
        yield count, found.iterations, found.job_seconds, found.time


def _alone(configurations: Sequence[Configuration], slots: int, costs: Costs) -> Result:
    return simulate(workload(configurations), "default", slots=slots, costs=costs, parameters=SAVES)


HEAD: Final = "family  studies mode      q  unique executed again    hours  saved  /q     time faster\n"


def compared(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows with their ratios to the baseline: `saved` for hours, `faster` for time, and how close `saved` comes to q."""
    alone = {(row.family, row.studies): row for row in rows if row.mode == "trials"}
    found = []
    for row in rows:
        base = alone[row.family, row.studies]
        if row is base:
            found.append({**asdict(row), "again": None, "saved": 1.0, "saved_by_q": None, "faster": 1.0})
            continue
        saved = base.hours / row.hours
        more = {"again": row.executed - row.unique, "saved": saved, "saved_by_q": saved / row.q}
        found.append({**asdict(row), **more, "faster": base.time / row.time})
    return found


def wrong(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return messages about rows in which something was trained twice or not at all, or too little was saved."""
    said = []
    for row in found:
        where = f"{row['family']}, {row['studies']} studies, {row['mode']}"
        if row["again"]:
            said.append(f"{where}: {row['executed']} positions were trained, and {row['unique']} are different")
        if row["saved_by_q"] is not None and row["saved_by_q"] < NEAR:
            said.append(
                f"{where}: {row['saved']:.2f} times fewer hours are {row['saved_by_q']:.3f} q; allowed is {NEAR} q"
            )
    return said


def show(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows as a table."""
    sys.stdout.write(HEAD)
    for row in found:
        again, near = ("", "") if row["mode"] == "trials" else (row["again"], f"{row['saved_by_q']:.3f}")
        sys.stdout.write(
            "{family:<7} {studies:>7} {mode:<6} {q:>4.2f} {unique:>7} {executed:>8} {0:>5} {hours:>8.0f} {saved:>6.2f} {1:>5} "
            "{time:>7.0f} {faster:>6.2f}\n".format(again, near, **row)
        )


def plot(found: Sequence[Mapping[str, Any]], output: Path) -> None:
    """Draw Figures 13 and 14 of the paper: slot-hours above, end-to-end time below, one column per family."""
    from matplotlib.figure import Figure

    known = {"trials": "trial by trial", "later": "one after another", "once": "at once"}
    names = {mode: name for mode, name in known.items() if any(row["mode"] == mode for row in found)}
    colours = {"trials": "#9aa5b1", "later": "#f0a04b", "once": "#2a78b8"}
    families = sorted({row["family"] for row in found})
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(2, len(families), squeeze=False)
    counts = sorted({row["studies"] for row in found})
    for column, family in enumerate(families):
        for axis, key, title in (
            (axes[0][column], "hours", "slot-hours"),
            (axes[1][column], "time", "end-to-end time"),
        ):
            for index, mode in enumerate(names):
                bars = [row for row in found if row["family"] == family and row["mode"] == mode]
                places = [counts.index(row["studies"]) + (index - (len(names) - 1) / 2) * 0.27 for row in bars]
                drawn = axis.bar(places, [row[key] for row in bars], 0.25, color=colours[mode], label=names[mode])
                ratio = "saved" if key == "hours" else "faster"
                if mode != "trials":
                    axis.bar_label(drawn, [f"{row[ratio]:.2f}" for row in bars], fontsize=8)
            rates = {row["studies"]: row["q"] for row in found if row["family"] == family}
            axis.set_xticks(range(len(counts)), [f"S{count}\nq {rates[count]:.2f}" for count in counts])
            axis.set_ylabel(f"{title}, in epochs")
            axis.spines[["top", "right"]].set_visible(False)
        axes[0][column].set_title(f"{family} merge rate")
    axes[0][0].legend(frameon=False)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=120, metadata={"Software": None})


def main() -> int:
    """Run the command line: print a table, or JSON. Rows that the file `--output` has already are not measured again."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--studies", default="1,2,4,8")
    parser.add_argument("--modes", default="later,once")
    parser.add_argument("--slots", type=int, default=40)
    parser.add_argument(
        "--snapshot", type=float, default=0.02, help="cost of a snapshot, and of a start from one, in epochs"
    )
    parser.add_argument("--output", type=Path, help="keep the rows there, and go on from them")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    costs = Costs(snapshot=given.snapshot, resume=given.snapshot)
    counts = [int(count) for count in given.studies.split(",")]
    kept = json.loads(given.output.read_text(encoding="utf-8")) if given.output and given.output.exists() else []
    rows = [Row(**row) for row in kept]
    for family in given.families.split(","):
        for mode in ("trials", *given.modes.split(",")):
            known = {row.studies for row in rows if (row.family, row.mode) == (family, mode)}
            left = [count for count in counts if count not in known]
            for row in measure(family, left, mode, given.slots, costs) if left else ():
                rows.append(row)
                if given.output:
                    given.output.write_text(
                        json.dumps([asdict(each) for each in rows], indent=1) + "\n", encoding="utf-8"
                    )
    order = {mode: index for index, mode in enumerate(("trials", "later", "once"))}
    found = compared(sorted(rows, key=lambda row: (row.family, row.studies, order[row.mode])))
    if given.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        show(found)
    if given.plot:
        plot(found, given.plot)
    problems = wrong(found)
    sys.stderr.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
