"""Does training get slower while predictions run on the same node? Live clusters, in which the training process times each epoch.

    python benchmarks/predicting_beside.py [--predictor mcmc ...] [--cores N] [--blocks 13] [--runs 3] [--json FILE|-]

Epochs are divided into blocks. A policy requests a prediction after every epoch of each second block, and none in the others, so that
epochs with and without predictions of the same run are compared. It is measured with one job fewer than cores, so that one core is free
for predictions, and with one job per core. Predictions run on the node agent, in low-priority processes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
from figures.cluster import embedded, ended, processes
from figures.frame import host
from figures.timing import journal
from rich.console import Console
from rich.table import Table

from hopyard.client.types import Statistic

PROGRESS: Final = Console(stderr=True, soft_wrap=True)
CODE: Final = Path(__file__).parent / "figures" / "trained"
BLOCK: Final = 5
SETTLING: Final = 2
"""Number of epochs at the start of a block that are not counted, because predictions of the previous block may still run."""
LIMIT: Final = 1800.0


def spec(predictor: str, jobs: int, blocks: int, steps: int) -> dict[str, Any]:
    """Return an experiment whose jobs train at the same time, with predictions in alternate blocks."""
    return {
        "name": "beside",
        "trainer": "train.py:Busy",
        "metric": {"name": "accuracy", "mode": "max", "min": 0.0, "max": 1.0},
        "space": {"lr": {"loguniform": [0.001, 0.1]}, "steps": {"constant": steps}},
        "policy": {"name": "figures.policies:AsksInTurns", "block": BLOCK, "target": 0.8},
        "predictor": predictor,
        "stop": {"jobs": jobs, "max_iterations": blocks * BLOCK},
        "snapshot": {"every": 1_000_000, "keep_best": 0},
        "resources": {"per_job": {"cpus": 1}},
    }


async def measure(predictor: str, jobs: int, blocks: int, steps: int, folder: Path) -> dict[str, Any]:
    """Run once. Return the epoch times in seconds with and without predictions, and figures of the predictions."""
    async with embedded(folder, jobs) as (_, client):
        experiment = await client.create(spec(predictor, jobs, blocks, steps), CODE)
        spent = asyncio.create_task(_low_priority_cpu())
        await ended(client, experiment, LIMIT)
        spent.cancel()
        found = await client.statistics(experiment)
        seconds = await spent
    return {**_compared(found), **_predictions(folder), "predictor CPU": seconds}


def _compared(statistics: list[Statistic]) -> dict[str, Any]:
    """Return the median epoch times with and without predictions, and their ratios."""
    epochs: dict[tuple[bool, str], list[float]] = {}
    for one in statistics:
        # The epoch that ends at position p trains while the prediction that was requested at p - 1 runs.
        block, place = divmod(one.report.position - 1, BLOCK)
        if block >= 2 and place >= SETTLING:
            for name in ("wall", "cpu"):
                epochs.setdefault((bool(block % 2), name), []).append(one.report.metrics[name])
    return {
        "epochs": len(epochs[True, "wall"]),
        "with": median(epochs[True, "wall"]),
        "without": median(epochs[False, "wall"]),
        "ratio": median(epochs[True, "wall"]) / median(epochs[False, "wall"]),
        "CPU ratio": median(epochs[True, "cpu"]) / median(epochs[False, "cpu"]),
    }


def _predictions(folder: Path) -> dict[str, Any]:
    """Return the number of requested, answered and failed predictions, and the median time to an answer by the scheduler's clock."""
    asked: dict[str, float] = {}
    waited, errors = list[float](), 0
    for at, kind, event in journal(folder / "appstat.sqlite"):
        if kind == "PolicyAnswered":
            for command in event["answer"].get("commands", ()):
                if command["is"] == "Predict":
                    asked[f"policy/{command['ticket']}"] = at
        elif kind == "Answered" and event["ticket"] in asked:
            waited.append(at - asked[event["ticket"]])
            errors += bool(event.get("error"))
    if not waited:
        raise RuntimeError("no prediction was answered, so that nothing ran beside the training")
    return {"asked": len(asked), "answered": len(waited), "errors": errors, "answer after": median(waited)}


async def _low_priority_cpu() -> float:
    """Sample the low-priority descendants of this process until cancelled; then return their CPU seconds."""
    seen: dict[int, float] = {}
    try:
        while True:
            for process in processes():
                try:
                    if process.nice() > 0:
                        seen[process.pid] = sum(process.cpu_times()[:2])
                except psutil.NoSuchProcess:
                    continue
            await asyncio.sleep(0.25)
    except asyncio.CancelledError:
        return sum(seen.values())


async def runs(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Run everything `--runs` times, and return the rows of the medians."""
    places = {"a core is free": given.cores - 1, "no core is free": given.cores}
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in range(1, given.runs + 1):
        for predictor in given.predictor:
            for place, jobs in places.items():
                if jobs < 1:
                    continue
                with tempfile.TemporaryDirectory(prefix="beside-") as data:
                    one = await measure(predictor, jobs, given.blocks, given.steps, Path(data))
                found.setdefault((predictor, place), []).append({"jobs": jobs, **one})
                PROGRESS.print(
                    f"run {run} of {given.runs}, {predictor}, {place}: epochs {one['ratio']:.3f} times as long"
                )
    return [
        {"predictor": predictor, "where": place, **{name: median(one[name] for one in same) for name in same[0]}}
        | {"ratios": [one["ratio"] for one in same]}
        for (predictor, place), same in found.items()
    ]


def show(rows: list[dict[str, Any]], where: dict[str, Any]) -> None:
    """Print the rows as a table."""
    load = ", ".join(map(str, where["load_average"]))
    title = f"{where['cpu']}, {where['cores']} cores, load before {load}, Python {where['python']}"
    table = Table(
        "predictor", "", "jobs", "epoch without", "with", "ratio", "CPU ratio", "predictions", title=title, box=None
    )
    for row in rows:
        ratios = f"{row['ratio']:.3f} ({min(row['ratios']):.3f} .. {max(row['ratios']):.3f})"
        said = f"{row['answered']:.0f} of {row['asked']:.0f} answered, {row['errors']:.0f} errors, median {row['answer after']:.2f} s, "
        table.add_row(
            row["predictor"],
            row["where"],
            f"{row['jobs']:.0f}",
            f"{row['without']:.3f} s",
            f"{row['with']:.3f} s",
            ratios,
            f"{row['CPU ratio']:.3f}",
            f"{said}{row['predictor CPU']:.1f} s of CPU",
        )
    Console(width=None if sys.stdout.isatty() else 180).print(table)


def main() -> int:
    """Run the command line. Return 1 if epochs are more than 5 % longer although a core is free."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictor", nargs="+", default=["mcmc"], help="names, or module:Class")
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="of this machine")
    parser.add_argument(
        "--blocks", type=int, default=13, help=f"blocks of {BLOCK} epochs; the first two are not counted"
    )
    parser.add_argument("--steps", type=int, default=300, help="of an epoch")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write the rows to a file, or - to the standard output")
    given = parser.parse_args()
    where = host()
    rows = asyncio.run(runs(given))
    text = json.dumps({"host": where, "rows": rows}, indent=2)
    if given.json == "-":
        print(text)
    else:
        show(rows, where)
        if given.json:
            Path(given.json).write_text(text + "\n")
    free = [row["ratio"] for row in rows if row["where"] == "a core is free"]
    return 0 if all(ratio <= 1.05 for ratio in free) else 1


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")])
    sys.exit(main())
