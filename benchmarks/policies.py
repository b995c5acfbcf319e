"""How fast do policies find a good configuration? Whole searches are simulated on real traces.

    python benchmarks/policies.py [--policies default,bandit:epsilon=0.5] [--traces FILE,FILE] [--slots 2,4,8,15] [--orders 25]
        [--half development|held-out|all] [--target SET=Y] [--tmax 2h] [--costs start=0.01,resume=0.03] [--jobs N]
        [--output results.json] [--plot FOLDER]

Each policy searches each set of traces once for each number of slots and each order of the configurations; all policies see the same
orders. A set is one file, by default each file in benchmarks/traces. The default target of a set is the final value that a tenth of its
configurations reach. benchmarks/policies.yaml contains the fixed terms of sets, such as the longest search; a set that is not in it has
none. A set is divided into two halves of configurations: one for development, one that is held out.

The median, the quartiles and the 90th percentile of the time to the target are times of actual searches, in seconds. A search that
never reached the target counts as longer than any other; a figure that it determines is shown as `never`. The table also shows the slot
time of the searches, and how often jobs were suspended.

Policies are written as their name in an experiment file, followed by their parameters: `bandit`,
`bandit:epsilon=0.25:evaluation_boundary=5`, `mymodule:MyPolicy:width=3`. A policy that uses another predictor than `pooled` names it:
`pop@grid`, `earlyterm@pooled:evaluation_boundary=10`.

By default a start takes 10 ms, a resume 30 ms and a suspend 30 ms, as in a live cluster with models of about 100 KB and training
processes that are already running (benchmarks/figures). The results are those of `hopyard simulate --json`, so `hopyard plot` reads the
file. `--plot` draws the plots boxes, capacity and orders of each set.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import yaml

from hopyard.errors import HopyardError, InvalidInput
from hopyard.spec.models import DEFAULT_PREDICTOR
from hopyard.spec.units import seconds
from hopyard.traces import Trace, read_traces
from hopyard_simulator import Costs, PredictionCache, TraceWorkload, simulate

TRACES = Path(__file__).parent / "traces"
PROTOCOL = Path(__file__).with_suffix(".yaml")
HALVES = ("all", "development", "held-out")
COSTS = Costs(start=0.01, resume=0.03, suspend=0.03)
PLOTS = ("boxes", "capacity", "orders")

T = TypeVar("T")


@dataclass(frozen=True)
class Contender:
    """A policy with its parameters and its predictor (None: the default one); `label` is the text that the user wrote."""

    label: str
    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    predictor: str | None = None


@dataclass(frozen=True)
class Terms:
    """The fixed terms of a set.

    Attributes:
        max_time: Virtual time after which a search ends; None: no limit.
        low: Smallest possible value of the metric; None: unknown.
        high: Largest possible value of the metric; None: unknown.
        kill_threshold: Value of the metric without any learning; None: unknown.
    """

    max_time: str | float | None = None
    low: float | None = None
    high: float | None = None
    kill_threshold: float | None = None

    def parameters(self) -> dict[str, float]:
        """Return the terms as settings of a simulated experiment."""
        terms = {"low": self.low, "high": self.high, "kill_threshold": self.kill_threshold}
        return {name: value for name, value in terms.items() if value is not None}


@dataclass(frozen=True)
class Search:
    """The parameters of one simulated search."""

    traces: Path
    half: str
    policy: Contender
    slots: int
    order_seed: int
    target: float
    max_time: float | None
    costs: Costs


def contender(text: str) -> Contender:
    """Parse a policy from text: its name, optionally @ and a predictor, and its parameters."""
    parts = text.split(":")
    parameters = dict(part.split("=", 1) for part in parts if "=" in part)
    name = ":".join(part for part in parts if "=" not in part)
    name, _, predictor = name.partition("@")
    return Contender(text, name, {key: yaml.safe_load(value) for key, value in parameters.items()}, predictor or None)


@cache
def foreseen() -> PredictionCache:
    """Return this process's cache of predictions, which all its searches share."""
    return PredictionCache()


@cache
def protocol() -> Mapping[str, Terms]:
    """Return the terms of sets, by the set's name."""
    return {name: Terms(**terms) for name, terms in yaml.safe_load(PROTOCOL.read_text()).items()}


def terms_of(traces: Path) -> Terms:
    """Return the terms of the set in a file; no terms if the set has none."""
    return protocol().get(set_name(str(traces)), Terms())


def halved(traces: Sequence[Trace], name: str, half: str) -> list[Trace]:
    """Return the traces of one half of a set, in the set's order. `name` is the set's name, which determines the halves."""
    ordered = sorted(traces, key=lambda trace: hashlib.sha256(f"{name}/{trace.job}".encode()).digest())
    middle = len(ordered) // 2
    chosen = {"development": ordered[:middle], "held-out": ordered[middle:], "all": ordered}[half]
    jobs = {trace.job for trace in chosen}
    return [trace for trace in traces if trace.job in jobs]


@cache
def searched(traces: Path, half: str) -> list[Trace]:
    """Return the traces of one half of the set in a file."""
    return halved(read_traces(traces), set_name(str(traces)), half)


@cache
def workload(traces: Path, half: str) -> TraceWorkload:
    """Return the workload of one half of a set; it is read once in each process."""
    return TraceWorkload(searched(traces, half))


def usual_target(traces: Sequence[Trace]) -> float:
    """Return the default target: the final value that a tenth of the configurations reach."""
    sign = -1.0 if traces[0].mode == "min" else 1.0
    finals = [next((sign * v for v in reversed(trace.metrics) if math.isfinite(v)), -math.inf) for trace in traces]
    return sign * float(np.quantile(finals, 0.9, method="inverted_cdf"))


def clairvoyant(traces: Sequence[Trace], target: float) -> float:
    """Return the seconds until the fastest configuration reaches the target if it is started first; infinite: none reaches it."""
    soonest = math.inf
    for trace in traces:
        passed = 0.0
        for value, took in zip(trace.metrics, trace.seconds, strict=True):
            passed += took
            if value <= target if trace.mode == "min" else value >= target:
                soonest = min(soonest, passed)
                break
    return soonest


def run(search: Search) -> dict[str, Any]:
    """Simulate a search, and return its result as `hopyard simulate --json` prints it, without `pools`, which is most of it."""
    policy = search.policy
    result = simulate(
        workload(search.traces, search.half),
        policy.name,
        parameters={
            **{f"experiment.{name}": value for name, value in terms_of(search.traces).parameters().items()},
            **{f"policy.{name}": value for name, value in policy.parameters.items()},
        },
        slots=search.slots,
        order_seed=search.order_seed,
        target=search.target,
        max_time=search.max_time,
        costs=search.costs,
        predictor=policy.predictor or DEFAULT_PREDICTOR,
        foreseen=foreseen(),
    ).plain()
    del result["pools"]
    return {"traces": [str(search.traces)], **result, "policy": policy.label, "predictor": policy.predictor}


def run_all(searches: Sequence[Search], jobs: int) -> list[dict[str, Any]]:
    """Simulate searches in `jobs` processes, and return the results in the order of the searches."""
    began, results = time.monotonic(), dict[int, dict[str, Any]]()
    with ProcessPoolExecutor(jobs) as pool:
        futures = {pool.submit(run, search): index for index, search in enumerate(searches)}
        try:
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                _progress(len(results), len(searches), time.monotonic() - began)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [results[index] for index in range(len(searches))]


def _progress(done: int, of: int, passed: float) -> None:
    live = sys.stderr.isatty()
    if live or done == of or done * 10 // of > (done - 1) * 10 // of:
        text = f"{done} of {of} searches, {passed:.0f} s, about {passed / done * (of - done):.0f} s left"
        print(
            f"\r\x1b[K{text}" if live and done < of else f"\r{text}",
            end="" if live and done < of else "\n",
            file=sys.stderr,
        )


def table(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per set, number of slots and policy. `faster` is the median of the first policy divided by that of the row."""
    groups: dict[tuple[str, int, str], list[Mapping[str, Any]]] = {}
    for result in results:
        groups.setdefault((set_name(result["traces"][0]), result["slots"], result["policy"]), []).append(result)
    rows: list[dict[str, Any]] = []
    first: tuple[str, int, float] | None = None
    for (name, slots, policy), group in sorted(groups.items(), key=lambda item: item[0][:2]):
        reached = [result["time_to_target"] for result in group]
        times = [math.inf if one is None else one for one in reached]
        q25, median, q75, q90 = (float(np.quantile(times, q, method="inverted_cdf")) for q in (0.25, 0.5, 0.75, 0.9))
        if first is None or first[:2] != (name, slots):
            first = name, slots, median
        rows.append(
            {
                "set": name,
                "slots": slots,
                "policy": policy,
                "searches": len(group),
                "never": reached.count(None),
                "median": median,
                "q25": q25,
                "q75": q75,
                "iqr": q75 - q25 if math.isfinite(q75) else math.inf,
                "q90": q90,
                "min": min(times),
                "max": max(times),
                "faster": first[2] / median if math.isfinite(first[2]) and median else None,
                "job_seconds": float(np.median([result["job_seconds"] for result in group])),
                "suspends": float(np.median([result["suspends"] for result in group])),
            }
        )
    return rows


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    times = ("median", "q25", "q75", "iqr", "q90", "min", "max")
    cells = [["set", "policy", "slots", "median s", *times[1:], "never", "faster", "slot s", "suspends"]]
    for row in rows:
        never, faster = f"{row['never']}/{row['searches']}", f"{row['faster']:.2f}x" if row["faster"] else "-"
        costs = [f"{row['job_seconds']:.0f}", f"{row['suspends']:g}"]
        places = [row["set"], row["policy"], str(row["slots"])]
        cells.append([*places, *(_time(row[name]) for name in times), never, faster, *costs])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = [cell.ljust(width) for cell, width in zip(line[:2], widths, strict=False)]
        padded += [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        print("  ".join(padded))


def _time(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "never"


def plot(results: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Draw the plots boxes, capacity and orders of each set to files in a folder."""
    from hopyard.plots import gather, read, save

    folder.mkdir(parents=True, exist_ok=True)
    for traces in dict.fromkeys(result["traces"][0] for result in results):
        some = [result for result in results if result["traces"][0] == traces]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(some, file)
            file.flush()
            searches = read(Path(file.name))
        for kind in PLOTS:
            if kind == "capacity" and len({result["slots"] for result in some}) < 2:
                continue
            if kind == "orders" and len({result["order_seed"] for result in some}) < 2:
                continue
            path = folder / f"{set_name(traces)}-{kind}.svg"
            save(gather(searches, kind), path)
            print(path, file=sys.stderr)


def set_name(traces: str) -> str:
    return Path(traces).name.split(".")[0]


def listed(kind: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Return a function that converts comma-separated text to a list, for argparse; `kind` converts each part."""

    def read(text: str) -> list[T]:
        return [kind(part) for part in re.split(r",(?![^\[]*\])", text)]  # Not at the commas inside brackets.

    read.__name__ = f"list of {kind.__name__}"
    return read


def pairs(text: str) -> dict[str, float]:
    return {key: float(value) for key, value in (part.split("=", 1) for part in text.split(","))}


def duration(text: str) -> float:
    return seconds(float(text) if text.replace(".", "", 1).isdigit() else text)


def made(arguments: argparse.Namespace) -> Iterable[Search]:
    """Yield all searches that the options describe. Print a summary of each set."""
    files: list[Path] = arguments.traces or sorted(TRACES.rglob("*.jsonl.gz"))
    if not files:
        raise InvalidInput(f"there are no traces in {TRACES}; record some, or name files with --traces")
    names = [set_name(str(path)) for path in files]
    if unknown := sorted(set(arguments.target) - set(names)):
        raise InvalidInput(f"--target: there is no set {', '.join(unknown)}; there are: {', '.join(names)}")
    costs = Costs(**arguments.costs) if arguments.costs is not None else COSTS
    for name, path in zip(names, files, strict=True):
        terms, traces = terms_of(path), searched(path, arguments.half)
        target = arguments.target[name] if name in arguments.target else usual_target(traces)
        longest = arguments.tmax or (seconds(terms.max_time) if terms.max_time is not None else None)
        soonest = clairvoyant(traces, target)
        print(
            f"{name}: {len(traces)} configurations, target {target:g}, T_max {longest or math.inf:g} s; the fastest configuration "
            f"alone takes {soonest:.1f} s",
            file=sys.stderr,
        )
        for slots in arguments.slots:
            for policy in arguments.policies:
                for order in range(arguments.orders):
                    yield Search(path, arguments.half, policy, slots, order, target, longest, costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--policies",
        type=listed(contender),
        default="default,bandit",
        metavar="NAME[:KEY=VALUE...],...",
        help="[default: default,bandit]",
    )
    add("--traces", type=listed(Path), metavar="FILE,...", help="a set each [default: those in benchmarks/traces]")
    add("--slots", type=listed(int), default="2,4,8,15", metavar="N,...", help="slots [default: 2,4,8,15]")
    add("--orders", type=int, default=25, metavar="N", help="orders of the configurations [default: 25]")
    add("--half", choices=HALVES, default="all", help="which configurations [default: all]")
    add(
        "--target",
        type=pairs,
        default={},
        metavar="SET=Y,...",
        help="targets of sets, such as fashion=0.8 [default: see above]",
    )
    add(
        "--tmax",
        type=duration,
        metavar="TIME",
        help="virtual time after which a search is given up [default: the set's]",
    )
    add(
        "--costs",
        type=pairs,
        metavar="KEY=SECONDS,...",
        help="start, resume, snapshot, suspend, latency [default: see above]",
    )
    add("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes [default: as many as CPUs]")
    add("--output", type=Path, metavar="FILE", help="where the results go, as JSON")
    add("--plot", type=Path, metavar="FOLDER", help="where plots go")
    arguments = parser.parse_args()
    try:
        results = run_all(list(made(arguments)), arguments.jobs)
        if arguments.output is not None:
            arguments.output.write_text(json.dumps(results))
        show(table(results))
        if arguments.plot is not None:
            plot(results, arguments.plot)
    except (HopyardError, OSError, TypeError, ValueError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
