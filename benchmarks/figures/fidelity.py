"""The figure `fidelity`: how much longer an experiment takes than the training itself."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Final

from figures.cluster import at_rest, embedded, ended
from figures.frame import Sample
from figures.timing import TIMED, timed_spec
from hopyard.client.submission import prepare

SLOTS: Final = 4
JOBS: Final = 32
ITERATIONS: Final = 10
PACE: Final = 0.05
IDEAL: Final = JOBS * ITERATIONS * PACE / SLOTS


async def measure(folder: Path) -> list[Sample]:
    """Measure once: from the creation of the experiment to its end, in a cluster that is already idle."""
    bare = await _bare()
    submission = prepare(timed_spec(JOBS, ITERATIONS, PACE), TIMED)
    async with embedded(folder / "data", SLOTS) as (_, client):
        await at_rest()
        began = time.time()
        experiment = await client.create(submission)
        found = await ended(client, experiment)
        assert found.ended_at is not None
        wall = found.ended_at - began
        assert len(await client.statistics(experiment)) == JOBS * ITERATIONS
    return [
        Sample(
            name=f"wall of {JOBS} jobs of {ITERATIONS} iterations of {PACE * 1e3:g} ms on {SLOTS} slots",
            value=wall / IDEAL,
            unit="x ideal",
            most=1.05,
            baseline=bare / IDEAL,
            against="x ideal of threads that only sleep",
            beside={"wall, s": wall},
        )
    ]


async def _bare() -> float:
    def sleep() -> None:
        for _ in range(JOBS * ITERATIONS // SLOTS):
            time.sleep(PACE)

    began = time.perf_counter()
    await asyncio.gather(*(asyncio.to_thread(sleep) for _ in range(SLOTS)))
    return time.perf_counter() - began
