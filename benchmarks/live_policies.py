"""Which policy finds a good configuration first, live, and does the simulator agree? On Fashion-MNIST, on this machine.

    python benchmarks/live_policies.py [--policies default,bandit,earlyterm,pop] [--jobs 40] [--epochs 30] [--slots 2] [--runs 1]
        [--target Y] [--set kill_threshold=0.15] [--seed 15] [--output FILE.json] [--plot FILE.svg]

1. A live search with the default policy and no target records the whole curve of each configuration, as live_vs_simulated.py does. Two
   short searches measure the costs of starting, resuming, saving, suspending and deciding.
2. With each policy, `--runs` live searches with the target and the same generator seed: the same configurations in the same order.
3. The same searches simulated on the traces of step 1, with these costs and the median time of a prediction in the policy's live
searches.
   Policies that train other configurations than the recorded ones run live only: `pbt`, which changes them, and `bohb`, whose generator
   `tpe` learns.

Figures of each policy: the time to the target since the first job began to train, the reports (epochs) until then and in total, the
suspends, and the jobs terminated early. For live searches also the predictions: their number, the time until an answer, and the CPU
seconds of the processes that predict. Policies are written as for policies.py: `asha:eta=4`, `pop@grid`. `--set` gives the settings
`kill_threshold`, `min` and `max` of the metric, which apply to all searches.

The default target is the final value that a tenth of the configurations reach. With default sizes, five policies take about ten minutes
on two cores. Run the benchmark on a machine that has nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
from figures.cluster import embedded, ended, processes
from figures.timing import journal
from live_vs_simulated import (
    FIGURES,
    SAVE_EVERY,
    Live,
    conduct,
    document_of,
    error_of,
    figures_of,
    middle_of,
    note,
    parser_of,
    recorded,
    runs_of,
    simulated,
    stop_of,
)

from hopyard_simulator import Costs
from policies import Contender

HERE: Final = Path(__file__).parent
EXPERIMENT: Final = HERE / "traces" / "fashion" / "experiment.yaml"
BESIDE: Final = HERE.parent / "examples" / "fashion_mnist" / "data.py"
"""The module that the trainer of Fashion-MNIST imports."""

TERMS: Final = {"kill_threshold": "kill_threshold", "min": "low", "max": "high"}
"""Settings of the metric in an experiment file, and their names in the simulator."""

ALL: Final = {**FIGURES, "epochs_to_target": "epochs to target"}
LEARNING: Final = frozenset({"bohb"})
"""Policies that choose the generator themselves."""

UNRECORDED: Final = LEARNING | {"pbt"}
"""Policies that train other configurations than the recorded ones, so they cannot be simulated on the traces."""

_PATIENCE: Final = 3600.0


@dataclass(frozen=True)
class Load:
    """The predictions in a live search.

    Attributes:
        asked: Number of predictions that the policy requested.
        failed: Number of these that failed or were not answered.
        seconds: Median time in seconds from the request to the answer; 0: there was none.
        cpu_seconds: CPU time of the processes that predict, sampled every quarter of a second.
    """

    asked: int
    failed: int
    seconds: float
    cpu_seconds: float


async def searched(
    code: Path, base: Mapping[str, Any], policy: Contender, stop: Mapping[str, int], slots: int, target: float
) -> tuple[Live, Load]:
    """Run a live search with a policy, in a cluster for this search only; return it with its predictions."""
    spec = {
        **base,
        "metric": {**base["metric"], "target": target},
        "policy": {"name": policy.name, **policy.parameters},
        "stop": stop,
        "snapshot": {"every": SAVE_EVERY, "keep_best": 0},
    }
    if policy.name in LEARNING:
        spec["generator"] = {"seed": base["generator"]["seed"]}
    if policy.predictor is not None:
        spec["predictor"] = {"name": policy.predictor}
    with tempfile.TemporaryDirectory() as folder:
        async with embedded(Path(folder), slots) as (_, client):
            watching = asyncio.create_task(_predicting())
            try:
                experiment = await client.create(spec, code)
                await ended(client, experiment, _PATIENCE)
            finally:
                watching.cancel()
            spent = await watching
            jobs, traces = await client.jobs(experiment), await client.traces(experiment)
        database = Path(folder) / "appstat.sqlite"
        runs, terminated = runs_of(database, base["metric"]["name"])
        load = load_of(database, spent)
    return Live(jobs, traces, runs, terminated), load


async def _predicting() -> float:
    """Sample the processes that predict until cancelled; then return their CPU seconds."""
    seen: dict[int, float] = {}
    with suppress(asyncio.CancelledError):
        while True:
            for process in processes():
                with suppress(psutil.NoSuchProcess):
                    if "hopyard.predictor.process" in process.cmdline():
                        seen[process.pid] = sum(process.cpu_times()[:2])
            await asyncio.sleep(0.25)
    return sum(seen.values())


def load_of(database: Path, cpu_seconds: float) -> Load:
    """Return the predictions in the journal of a cluster with one experiment."""
    asked: dict[str, float] = {}
    took: list[float] = []
    for at, kind, event in journal(database):
        if kind == "PolicyAnswered":
            commands = event["answer"].get("commands", ())
            asked |= {f"policy/{one['ticket']}": at for one in commands if one["is"] == "Predict"}
        elif kind == "Answered" and event["ticket"] in asked and not event.get("error"):
            took.append(at - asked[event["ticket"]])
    return Load(len(asked), len(asked) - len(took), median(took) if took else 0.0, cpu_seconds)


def with_epochs(found: dict[str, Any]) -> dict[str, Any]:
    """Add `epochs_to_target` to the figures of a search: the number of reports up to the one that reached the target."""
    at = found["time_to_target"]
    found["epochs_to_target"] = None if at is None else sum(one <= at for one, _ in found["curve"])
    return found


def written(base: Mapping[str, Any], arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Copy the code of the experiment to a folder, and return the experiment with the given settings of the metric."""
    for path in arguments.experiment.parent.glob("*.py"):
        shutil.copy(path, folder)
    if arguments.experiment == EXPERIMENT:
        shutil.copy(BESIDE, folder)
    metric = {**base["metric"], **arguments.set}
    return {**base, "metric": metric, "generator": {**_named(base["generator"]), "seed": arguments.seed}}


def _named(given: Any) -> dict[str, Any]:
    return {"name": given} if isinstance(given, str) else dict(given)


async def compare(arguments: argparse.Namespace, base: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return await compare_in(Path(folder), arguments, written(base, arguments, Path(folder)))


async def compare_in(code: Path, arguments: argparse.Namespace, base: Mapping[str, Any]) -> dict[str, Any]:
    slots, stop = arguments.slots, stop_of(arguments)
    traces, target, costs = await recorded(arguments, base, code)
    lower = traces[0].mode == "min"
    rows = []
    for policy in arguments.policies:
        runs, loads = [], []
        for number in range(arguments.runs):
            search, load = await searched(code, base, policy, stop, slots, target)
            runs.append(with_epochs(figures_of(search, target, lower)))
            loads.append(load)
            note(f"{policy.label}, live {number + 1} of {arguments.runs}: {_number(runs[-1]['time_to_target'])} s")
        rows.append(_row(policy, runs, loads, traces, costs, arguments, target))
        if rows[-1]["simulated"] is not None:
            note(f"{policy.label}, simulated: {_number(rows[-1]['simulated']['time_to_target'])} s")
    return document_of(arguments, target, costs, rows, seed=arguments.seed, terms=arguments.set)


def _row(
    policy: Contender,
    runs: Sequence[dict[str, Any]],
    loads: Sequence[Load],
    traces: Sequence[Any],
    costs: Costs,
    arguments: argparse.Namespace,
    target: float,
) -> dict[str, Any]:
    """Return the row of a policy: its live searches, the simulated one, and the simulation's errors."""
    prediction = median(load.seconds for load in loads)
    terms = {TERMS[name]: value for name, value in arguments.set.items()}
    costs = replace(costs, prediction=prediction)
    found = None
    if policy.name not in UNRECORDED:
        found = with_epochs(simulated(traces, policy, arguments.slots, target, costs, terms))
    middle = {name: middle_of([run[name] for run in runs]) for name in ALL}
    return {
        "policy": policy.label,
        "live": list(runs),
        "median": middle,
        "simulated": found,
        "error": {name: error_of(found[name] if found is not None else None, middle[name]) for name in ALL},
        "predictions": [asdict(load) for load in loads],
    }


def _number(value: float | None) -> str:
    return "never" if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}"


def show(document: Mapping[str, Any]) -> None:
    """Print one row per policy, each figure as live / simulated."""
    print(f"target {document['settings']['target']:g}; each figure: live / simulated")
    names = ("time_to_target", "epochs_to_target", "iterations", "jobs_started", "jobs_terminated", "suspends")
    heads = [ALL[name].replace("iterations", "epochs in all") for name in names]
    print(
        f"{'policy':28}",
        *(f"{head:>18}" for head in heads),
        f"{'error':>7}",
        f"{'predictions':>12}",
        f"{'CPU s':>6}",
        f"{'answer s':>8}",
    )
    for row in document["policies"]:
        found = row["simulated"]
        pairs = (f"{_number(row['median'][name])} / {_number(found[name]) if found else '-'}" for name in names)
        error, loads = row["error"]["time_to_target"], row["predictions"]
        off = f"{error:+.1%}" if error is not None else "-"
        load = (median(one[name] for one in loads) for name in ("asked", "cpu_seconds", "seconds"))
        asked, spent, took = load
        print(
            f"{row['policy']:28}",
            *(f"{pair:>18}" for pair in pairs),
            f"{off:>7} {asked:>12g} {spent:>6.1f} {took:>8.3f}",
        )


def terms(text: str) -> dict[str, float]:
    """Parse NAME=VALUE,... for argparse.

    Raises:
        argparse.ArgumentTypeError: A name is not in TERMS, or a value is no number.
    """
    found = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in TERMS:
            raise argparse.ArgumentTypeError(f"found {name!r}, allowed are {', '.join(TERMS)}")
        try:
            found[name] = float(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{name}: needs a number, found {value!r}") from None
    return found


def main() -> None:
    policies = "default,bandit:evaluation_boundary=3,earlyterm:evaluation_boundary=3,pop:evaluation_boundary=3"
    parser = parser_of(__doc__, policies, runs=1, jobs=40, epochs=30, experiment=EXPERIMENT)
    add = parser.add_argument
    add("--seed", type=int, default=15, help="of the generator [default: 15]")
    add(
        "--set",
        type=terms,
        default="kill_threshold=0.15,min=0,max=1",
        metavar="NAME=VALUE,...",
        help="terms of the metric",
    )
    conduct(parser.parse_args(), compare, show)


if __name__ == "__main__":
    main()
