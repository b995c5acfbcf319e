"""The figure `jobs`: the number of jobs per second that are proposed, trained, saved and completed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from figures.baselines import fork_rate
from figures.cluster import NOOP, cpu_seconds, embedded, ended, noop_spec
from figures.frame import Sample

SLOTS: Final = 2
JOBS: Final = 256
ITERATIONS: Final = 10
TARGET: Final = 150.0


async def measure(folder: Path) -> list[Sample]:
    """Measure once."""
    async with embedded(folder / "data", SLOTS) as (_, client):
        # Start the training processes before the measurement: their start is measured by the figure `start`.
        experiment = await client.create(noop_spec(SLOTS, ITERATIONS), NOOP)
        await ended(client, experiment)
        used, began = cpu_seconds(), time.perf_counter()
        experiment = await ended(client, await client.extend(experiment, jobs=JOBS))
        seconds, used = time.perf_counter() - began, cpu_seconds() - used
        reports = len(await client.statistics(experiment))
    assert experiment.jobs == {"COMPLETED": SLOTS + JOBS}, experiment.jobs
    assert reports == (SLOTS + JOBS) * ITERATIONS, reports
    bare = await asyncio.to_thread(fork_rate, JOBS, ITERATIONS, SLOTS)
    return [
        Sample(
            name=f"{JOBS} no-op jobs of {ITERATIONS} iterations on {SLOTS} slots",
            value=JOBS / seconds,
            unit="jobs/s",
            least=TARGET,
            baseline=bare,
            against="a bare fork server with pipes",
            beside={"CPU ms a job, all processes": used / JOBS * 1e3},
        )
    ]
