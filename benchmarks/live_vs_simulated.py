"""Does the simulator predict what a live cluster does? The same searches, live and simulated, with several policies.

    python benchmarks/live_vs_simulated.py [--policies default,bandit:evaluation_boundary=3] [--runs 3] [--slots 2] [--jobs 24]
        [--epochs 20] [--target Y] [--experiment examples/digits/experiment.yaml] [--output FILE.json] [--plot FILE.svg]

1. A live search with the default policy and no target records the whole curve of each configuration. It has as many slots as the later
   searches, because jobs that share memory and caches train slower than alone.
2. Two short live searches: in one, jobs take turns, so that they are suspended and resumed; in the other, each report waits for a
decision.
3. The costs are the medians measured in the journals of these three. `start`, `resume`: from the decision until the process trains
(time of
   the first report minus its seconds), in processes that are already running, minus two latencies. `snapshot`: from the last report of
   a complete job until its snapshot is taken. `suspend`: from then until its slot is free. `latency`: half of the time between two
   reports minus the second one's seconds, if the first one waited for a decision.
4. With each policy, `--runs` live searches with the target, and a simulated one on the traces with these costs.

All have the same seed, so the same configurations in the same order with the same curves. Both clocks start when the first job begins
to train: importing a framework happens once per slot, and does not depend on the policy. The error is that of the simulated time to the
target against the median of the live ones. For comparison, HyperDrive's simulator had an error of at most 13 % (section 7). Run the
benchmark on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml
from figures.cluster import embedded, ended
from figures.frame import host
from figures.timing import journal

from hopyard.client.types import Job
from hopyard.errors import HopyardError, InvalidInput
from hopyard.spec.models import DEFAULT_PREDICTOR
from hopyard.traces import Trace
from hopyard_engine.policy_host.factory import new_policy
from hopyard_simulator import Costs, TraceWorkload, simulate
from policies import Contender, contender, listed, usual_target

DIGITS: Final = Path(__file__).parents[1] / "examples" / "digits" / "experiment.yaml"
FIGURES: Final = {
    "time_to_target": "time to target, s",
    "time": "time, s",
    "job_seconds": "slot time, s",
    "best": "best",
    "jobs_started": "jobs started",
    "jobs_terminated": "jobs ended early",
    "iterations": "iterations",
    "suspends": "suspends",
}
SAVE_EVERY: Final = 1_000_000
"""Positions between the snapshots of a run, live and simulated: none during training, because they would take time."""

_PATIENCE: Final = 3600.0


@dataclass
class Run:
    """A run in a journal.

    Attributes:
        slot: Id of the slot.
        resumed: Whether the job had run before.
        decided: When the policy decided to start it, in seconds since the Unix epoch.
        reports: Time of receipt, seconds, position and value of each report.
        saved: When its snapshot was taken; None: never.
        ended: When it ended; None: it has not ended.
        left: Whether it left its slot before its job was complete, and was not terminated.
    """

    slot: str
    resumed: bool
    decided: float
    reports: list[tuple[float, float, int, float]]
    saved: float | None = None
    ended: float | None = None
    left: bool = False

    @property
    def began(self) -> float:
        """When the run began to train: the time of its first report minus the seconds of its first iteration."""
        return self.reports[0][0] - self.reports[0][1]


@dataclass
class Live:
    """The result of a live search.

    Attributes:
        jobs: The jobs.
        traces: The curves of the jobs.
        runs: The runs by (job, attempt).
        terminated: Number of jobs that the policy terminated.
    """

    jobs: Sequence[Job]
    traces: Sequence[Trace]
    runs: dict[tuple[str, int], Run]
    terminated: int


async def live(
    code: Path,
    base: Mapping[str, Any],
    policy: Mapping[str, Any],
    stop: Mapping[str, int],
    slots: int,
    target: float | None = None,
) -> Live:
    """Run a live search in a cluster for this search only.

    Args:
        code: Code folder of the experiment.
        base: The experiment.
        policy: Replaces the experiment's policy.
        stop: Replaces its `stop`.
        slots: Number of slots.
        target: Replaces the target of its metric; None: no target.
    """
    metric = {**base["metric"], "target": target}
    snapshot = {"every": SAVE_EVERY, "keep_best": 0}
    spec = {**base, "metric": metric, "policy": policy, "stop": stop, "snapshot": snapshot}
    with tempfile.TemporaryDirectory() as folder:
        async with embedded(Path(folder), slots) as (_, client):
            experiment = await client.create(spec, code)
            await ended(client, experiment, _PATIENCE)
            jobs, traces = await client.jobs(experiment), await client.traces(experiment)
        runs, terminated = runs_of(Path(folder) / "appstat.sqlite", metric["name"])
    return Live(jobs, traces, runs, terminated)


def runs_of(database: Path, metric: str) -> tuple[dict[tuple[str, int], Run], int]:
    """Return the runs in the journal of a cluster that had one experiment without failures, and the number of terminated jobs."""
    terminated, last = 0, 0
    runs: dict[tuple[str, int], Run] = {}
    attempts: dict[str, int] = {}
    for at, kind, event in journal(database):
        if kind == "StreamCreated":
            last = event["settings"]["max_position"]
        elif kind == "PolicyAnswered":
            terminated += (event["answer"].get("decision") or {}).get("kind") == "TERMINATE"
            for command in event["answer"].get("commands", ()):
                terminated += command["is"] == "TerminateJob"
                if command["is"] == "StartJob":
                    job = command["job"]
                    attempts[job] = attempts.get(job, 0) + 1
                    runs[job, attempts[job]] = Run(command["slots"][0], attempts[job] > 1, at, [])
        elif kind == "RunMessage":
            run, body = runs[event["job"], event["attempt"]], event["body"]
            if body["is"] == "Reports":
                run.reports += [
                    (at, one["seconds"], one["position"], float(one["metrics"][metric])) for one in body["reports"]
                ]
            elif body["is"] == "SnapshotTaken":
                run.saved = at
            elif body["is"] == "Ended":
                run.ended = at
                run.left = body["reason"] in ("UNTIL", "SUSPENDED") and body["position"] < last
    return runs, terminated


def measured(searches: Sequence[Live], waiting: Live, epochs: int) -> Costs:
    """Return the costs measured in live searches; in `waiting`, each report waits for a decision."""
    between = [pair for run in waiting.runs.values() for pair in pairwise(run.reports)]
    latency = max(median(after[0] - before[0] - after[1] for before, after in between) / 2, 0.0)
    begun: dict[bool, list[float]] = {False: [], True: []}
    saving, leaving = [], []
    for search in searches:
        warm: set[str] = set()
        for run in sorted(search.runs.values(), key=lambda run: run.decided):
            if run.slot in warm and run.reports:
                begun[run.resumed].append(run.began - run.decided - 2 * latency)
            warm.add(run.slot)
            if run.saved is not None and run.ended is not None and run.reports:
                leaving.append(run.ended - run.saved)
                if run.reports[-1][2] >= epochs:
                    saving.append(run.saved - run.reports[-1][0])
    start, resume, snapshot, suspend = (
        max(median(found), 0.0) for found in (begun[False], begun[True], saving, leaving)
    )
    return Costs(start=start, resume=resume, snapshot=snapshot, suspend=suspend, latency=latency)


def figures_of(search: Live, target: float, lower: bool) -> dict[str, Any]:
    """Return the figures of a live search that a simulation has, too, and `curve`: all reports as (time, value).

    `lower` says whether low values of the metric are better.
    """
    zero = min(run.began for run in search.runs.values() if run.reports)
    curve = _curve((at - zero, value) for run in search.runs.values() for at, _, _, value in run.reports)
    ends = [run.ended - zero for run in search.runs.values() if run.ended is not None]
    held = sum(run.ended - max(run.decided, zero) for run in search.runs.values() if run.ended is not None)
    finite = [value for _, value in curve if value is not None]
    return {
        "time_to_target": reached(curve, target, lower),
        "time": max(ends),
        "job_seconds": held,
        "best": (min if lower else max)(finite) if finite else None,
        "jobs_started": len({job for job, _ in search.runs}),
        "jobs_terminated": search.terminated,
        "iterations": len(curve),
        "suspends": sum(run.left for run in search.runs.values()),
        "curve": curve,
    }


def simulated(
    traces: Sequence[Trace],
    policy: Contender,
    slots: int,
    target: float,
    costs: Costs,
    terms: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Simulate the same search on traces, and return its figures as `figures_of` does. `terms` are settings of the metric."""
    result = simulate(
        TraceWorkload(traces),
        policy.name,
        parameters={
            **{f"policy.{name}": value for name, value in policy.parameters.items()},
            **{f"experiment.{name}": value for name, value in (terms or {}).items()},
            "experiment.snapshot_every": SAVE_EVERY,
            "experiment.keep_best": 0,
        },
        slots=slots,
        target=target,
        costs=costs,
        predictor=policy.predictor or DEFAULT_PREDICTOR,
        details=True,
    )
    zero = costs.start + costs.latency
    reports = [(at or 0.0, value) for curve in (result.curves or {}).values() for at, _, value in curve]
    found = {name: getattr(result, name) for name in FIGURES}
    found["time"] -= zero
    if found["time_to_target"] is not None:
        found["time_to_target"] -= zero
    return {**found, "curve": _curve((at - zero, value) for at, value in reports)}


def _curve(reports: Iterable[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Return reports sorted by time. The value of a report that is not finite is None."""
    found = ((at, value if value is not None and math.isfinite(value) else None) for at, value in reports)
    return sorted(found, key=lambda report: report[0])


def reached(curve: Iterable[tuple[float, float | None]], target: float, lower: bool) -> float | None:
    """Return the time of the first report as good as the target; None: none was. `lower` says whether low values are better."""
    good = (at for at, value in curve if value is not None and (value <= target if lower else value >= target))
    return next(good, None)


async def recorded(
    arguments: argparse.Namespace, base: Mapping[str, Any], code: Path
) -> tuple[Sequence[Trace], float, Costs]:
    """Run the live searches that record curves and costs.

    Returns:
        The traces, the target (given, or derived from the traces), and the costs.
    """
    slots, epochs = arguments.slots, arguments.epochs
    note(f"recording {arguments.jobs} whole curves")
    recording = await live(code, base, {"name": "default"}, stop_of(arguments), slots)
    note("suspending and resuming")
    few = {"jobs": 2 * slots, "max_iterations": 4}
    turning = await live(code, base, {"name": "default", "barrier": True}, few, slots)
    note("waiting for decisions")
    judged = {"name": "bandit", "evaluation_boundary": 1, "epsilon": 1e9}
    waiting = await live(code, base, judged, {"jobs": slots, "max_iterations": 6}, slots)
    costs = measured([recording, turning], waiting, epochs)
    target = arguments.target if arguments.target is not None else usual_target(recording.traces)
    shown = ", ".join(f"{name} {value * 1e3:.0f} ms" for name, value in asdict(costs).items() if value)
    note(f"target {target:g}; costs {shown}")
    return recording.traces, target, costs


def stop_of(arguments: argparse.Namespace) -> dict[str, int]:
    return {"jobs": arguments.jobs, "max_iterations": arguments.epochs}


async def compare(arguments: argparse.Namespace, base: Mapping[str, Any]) -> dict[str, Any]:
    code: Path = arguments.experiment.parent
    stop = stop_of(arguments)
    traces, target, costs = await recorded(arguments, base, code)
    lower = traces[0].mode == "min"
    rows = []
    for policy in arguments.policies:
        named = {"name": policy.name, **policy.parameters}
        given = dict(base)
        if policy.predictor is not None:
            given["predictor"] = {"name": policy.predictor}
        runs = []
        for number in range(arguments.runs):
            search = await live(code, given, named, stop, arguments.slots, target)
            runs.append(figures_of(search, target, lower))
            note(f"{policy.label}, live {number + 1} of {arguments.runs}: {_time(runs[-1]['time_to_target'])}")
        found = simulated(traces, policy, arguments.slots, target, costs)
        note(f"{policy.label}, simulated: {_time(found['time_to_target'])}")
        middle = {name: middle_of([run[name] for run in runs]) for name in FIGURES}
        errors = {name: error_of(found[name], middle[name]) for name in FIGURES}
        row = {"policy": policy.label, "live": runs, "median": middle, "simulated": found, "error": errors}
        rows.append(row)
    return document_of(arguments, target, costs, rows)


def document_of(
    arguments: argparse.Namespace, target: float, costs: Costs, rows: Sequence[Mapping[str, Any]], **more: Any
) -> dict[str, Any]:
    """Return the JSON document: settings, host, costs, and one row per policy."""
    settings = {
        "experiment": "/".join(arguments.experiment.resolve().parts[-3:]),
        "slots": arguments.slots,
        **stop_of(arguments),
        "runs": arguments.runs,
        "target": target,
        **more,
    }
    return {"settings": settings, "host": host(), "costs": asdict(costs), "policies": rows}


def middle_of(values: Sequence[Any]) -> float | None:
    """Return the median; None in `values`, which means never, counts as infinite. None: the median is infinite."""
    middle = median(math.inf if value is None else float(value) for value in values)
    return middle if math.isfinite(middle) else None


def error_of(found: float | None, against: float | None) -> float | None:
    """Return the relative error of `found` against `against`; None: one of them is None."""
    return found / against - 1 if found is not None and against else None


def _time(value: float | None) -> str:
    return f"{value:.2f}" if value is not None else "never"


def show(document: Mapping[str, Any]) -> None:
    print(f"{'policy':24} {'':18} {'live':>10} {'simulated':>10} {'error':>8}")
    for row in document["policies"]:
        for name, words in FIGURES.items():
            error = row["error"][name]
            of = f"{error:+.1%}" if error is not None else "-"
            print(
                f"{row['policy']:24} {words:18} {_time(row['median'][name]):>10} {_time(row['simulated'][name]):>10} {of:>8}"
            )


def plot(document: Mapping[str, Any], mode: str, path: Path) -> None:
    """Draw the best value so far over time, live and simulated, with one panel per policy."""
    from hopyard.plots.figures import theme

    best = min if mode == "min" else max
    with theme.applied():
        figure, axes = theme.grid(len(document["policies"]), 3.4, 2.8)
        for ax, row in zip(axes, document["policies"], strict=True):
            drawn = [(run, theme.style_of(0), f"live, {len(row['live'])} runs") for run in row["live"]]
            also = [(row["simulated"], theme.style_of(1), "simulated")] if row["simulated"] is not None else []
            for number, (run, style, label) in enumerate([*drawn, *also]):
                times, values, so_far = [], [], None
                for at, value in run["curve"]:
                    if value is not None:
                        so_far = value if so_far is None else best(so_far, value)
                        times.append(at)
                        values.append(so_far)
                name = label if number in (0, len(drawn)) else None
                ax.step(times, values, where="post", color=style.color, linestyle=style.line, linewidth=1.0, label=name)
            ax.axhline(document["settings"]["target"], color=theme.GREY, linewidth=0.6)
            error = row["error"]["time_to_target"]
            ax.set_title(row["policy"].partition(":")[0] + (f" (error {error:+.1%})" if error is not None else ""))
            ax.set_xlabel("seconds since the first job began to train")
        axes[0].set_ylabel("best so far")
        axes[0].legend(loc="lower right" if best is max else "upper right")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parser_of(
    description: str | None, policies: str, runs: int, jobs: int, epochs: int, experiment: Path
) -> argparse.ArgumentParser:
    """Return the argument parser that live comparisons share, with these defaults."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add(
        "--policies",
        type=listed(contender),
        default=policies,
        metavar="NAME[:KEY=VALUE...],...",
        help=f"[default: {policies}]",
    )
    add("--runs", type=int, default=runs, help=f"live searches under each policy [default: {runs}]")
    add("--slots", type=int, default=2, help="slots [default: 2]")
    add("--jobs", type=int, default=jobs, help=f"configurations [default: {jobs}]")
    add("--epochs", type=int, default=epochs, help=f"of each job [default: {epochs}]")
    add("--target", type=float, help="[default: what a tenth of the configurations end with, or better]")
    add("--experiment", type=Path, default=experiment, metavar="FILE")
    add("--output", type=Path, metavar="FILE", help="where the figures and curves go, as JSON")
    add("--plot", type=Path, metavar="FILE", help="where the plot goes: .svg or .png")
    return parser


def conduct(
    arguments: argparse.Namespace,
    compare: Callable[[argparse.Namespace, dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]],
    show: Callable[[Mapping[str, Any]], None],
) -> None:
    """Run a comparison, print its result with `show`, and write the files that the options name."""
    try:
        if min(arguments.runs, arguments.slots, arguments.jobs, arguments.epochs) < 1:
            raise InvalidInput("--runs, --slots, --jobs and --epochs must be at least 1")
        if arguments.plot is not None and arguments.plot.suffix not in (".svg", ".png"):
            raise InvalidInput(f"--plot: {arguments.plot} must end in .svg or .png")
        for policy in arguments.policies:  # Report an invalid policy before the searches, which take minutes.
            new_policy(policy.name, dict(policy.parameters))
        base = yaml.safe_load(arguments.experiment.read_text())
        document = asyncio.run(compare(arguments, base))
    except (HopyardError, OSError, RuntimeError) as error:
        sys.exit(f"error: {error}")
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(document))
    show(document)
    if arguments.plot is not None:
        plot(document, base["metric"]["mode"], arguments.plot)


def main() -> None:
    parser = parser_of(__doc__, "default,bandit:evaluation_boundary=3", runs=3, jobs=24, epochs=20, experiment=DIGITS)
    conduct(parser.parse_args(), compare, show)


if __name__ == "__main__":
    main()
