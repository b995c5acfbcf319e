"""The figure `start`: the start of a run in an idle training process, and the whole start of `hopyard run`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Final

from figures.cluster import embedded, ended
from figures.frame import Sample
from figures.timing import TIMED, first_trained, journal, percentile, started, timed_spec

SLOTS: Final = 2
JOBS: Final = 60
PACE: Final = 0.02
_IMPORTS: Final = "import grpc.aio, pydantic, sqlalchemy"


async def measure(folder: Path) -> list[Sample]:
    """Measure once."""
    warm = await _warm(folder / "warm")
    bare = await _imports()
    return [
        Sample(
            name="warm, p50", value=percentile(warm, 0.5), unit="ms", most=10.0, beside={"p95": percentile(warm, 0.95)}
        ),
        Sample(
            name="cold hopyard run to the first metric",
            value=await _cold(folder / "cold"),
            unit="s",
            most=2.0,
            baseline=bare,
            against=f"s of python -c '{_IMPORTS}'",
        ),
    ]


async def _warm(data: Path) -> list[float]:
    """Return the milliseconds from the policy's decision to start a run to its first iteration, in processes already running."""
    async with embedded(data, SLOTS) as (_, client):
        experiment = await client.create(timed_spec(JOBS, 2, PACE), TIMED)
        await ended(client, experiment)
        trained = first_trained(await client.statistics(experiment))
        decided = started(data / "appstat.sqlite")
    order = sorted(trained, key=lambda key: trained[key])
    return [(trained[key] - decided[key]) * 1e3 for key in order[2 * SLOTS :]]


async def _cold(folder: Path) -> float:
    """Return the seconds from the start of the process of `hopyard run` to the report of the first metric."""
    _write(folder)
    began = time.time()
    arguments = ("-m", "hopyard.cli.main", "run", "experiment.json", "--slots", str(SLOTS), "--json")
    pipe = asyncio.subprocess.PIPE
    command = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=folder, stdout=pipe, stderr=pipe)
    _, said = await command.communicate()
    if command.returncode:
        raise RuntimeError(f"hopyard run ended with exit code {command.returncode}: {said.decode()}")
    reports = [
        at
        for at, kind, event in journal(folder / "hopyard-data" / "appstat.sqlite")
        if kind == "RunMessage" and event["body"]["is"] == "Reports"
    ]
    return min(reports) - began


def _write(folder: Path) -> None:
    folder.mkdir()
    (folder / "train.py").write_text((TIMED / "train.py").read_text())
    (folder / "experiment.json").write_text(json.dumps(timed_spec(2, 3, PACE)))


async def _imports() -> float:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _IMPORTS, env=os.environ)
    await process.wait()
    return time.perf_counter() - began
