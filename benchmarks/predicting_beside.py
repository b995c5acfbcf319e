"""Does training get slower while predictions run beside it? Live clusters, each epoch timed by the training process itself.

    python benchmarks/predicting_beside.py [--predictor mcmc ...] [--cores N] [--blocks 12] [--runs 3] [--json FILE|-]

A policy asks for a prediction after every epoch in each second block of epochs, and for none in the others: what is compared
lies side by side in the same runs. It is measured with one job less than cores (one core is free for predictions) and with a job
on each core. Predictions run on the node agent, in processes of low priority.
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
"""Epochs at the beginning of a block that are not counted: predictions of the block before may still be under way."""
LIMIT: Final = 1800.0


def spec(predictor: str, jobs: int, blocks: int, steps: int) -> dict[str, Any]:
    """Jobs that train side by side, and are asked about in turns."""
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
    """One run: epoch times with predictions beside and without, in seconds, and what the predictions took."""
    async with embedded(folder, jobs) as (_, client):
        experiment = await client.create(spec(predictor, jobs, blocks, steps), CODE)
        spent = asyncio.create_task(_low_priority_cpu())
        await ended(client, experiment, LIMIT)
        spent.cancel()
        found = await client.statistics(experiment)
        seconds = await spent
    return {**_compared(found), **_predictions(folder), "predictor CPU": seconds}


def _compared(statistics: list[Statistic]) -> dict[str, Any]:
    """Medians of epochs by whether predictions ran beside them."""
    epochs: dict[tuple[bool, str], list[float]] = {}
    for one in statistics:
        # An epoch that ends at position p is asked about at p, and trained beside what was asked at p - 1.
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
    """How many were asked for, how they came back, and after how long, by the scheduler's clock."""
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
    """CPU seconds of processes of low priority that this one's children started, once it is cancelled."""
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
    """All runs in turns, and the rows of their medians."""
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
    """The rows as a table."""
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
    """The command."""
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
