"""The figure `suspend`: time from the decision to suspend a run until its slot is free, its state stored, and it trains again."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from pathlib import Path
from typing import Final

from figures.cluster import embedded, ended
from figures.frame import Sample
from figures.timing import TIMED, first_trained, percentile, suspensions, timed_spec

SIZES: Final = (("360 KB", 360_000, 40), ("50 MB", 50_000_000, 12))
"""Sizes of the state: name, bytes, number of suspensions."""

PACE: Final = 0.05
_PARTS: Final = (("p50", 0.5), ("p95", 0.95))


async def measure(folder: Path) -> list[Sample]:
    """Measure once."""
    samples = []
    for name, size, times in SIZES:
        bare = await asyncio.to_thread(_bare, folder, size, times)
        free, stored, again = await _cycles(folder / str(size), size, times)
        both = [one + other for one, other in zip(free, again, strict=True)]
        beside = {f"bare, {part_name}": percentile(bare, part) for part_name, part in _PARTS}
        for what, found in (("until free", free), ("until stored", stored), ("until training again", again)):
            beside |= {f"{what}, {part_name}": percentile(found, part) for part_name, part in _PARTS}
        samples.append(
            Sample(
                name=f"{name}, suspend to free + resume, p50",
                value=percentile(both, 0.5),
                unit="ms",
                most=60.0 if size < 1_000_000 else None,
                baseline=percentile(bare, 0.5),
                against="ms of write + fsync + read + sha256 of the same bytes",
                beside=beside,
            )
        )
    return samples


async def _cycles(data: Path, size: int, times: int) -> tuple[list[float], list[float], list[float]]:
    """Suspend and resume a job `times` times, with a state of `size` bytes.

    Returns:
        For each suspension, the milliseconds from the decision until the run ended, from the decision until the state was stored, and
        from the
        end of the run until the job trained again.
    """
    policy = {"name": "figures.policies:EachIteration", "suspend": True}
    spec = dict(timed_spec(1, times + 2, PACE, policy=policy, trainer="train.py:Heavy"))
    spec["space"] = {**spec["space"], "size": {"constant": size}}
    async with embedded(data, 1) as (_, client):
        experiment = await client.create(spec, TIMED)
        await ended(client, experiment)
        trained = first_trained(await client.statistics(experiment))
    decided, free, stored = suspensions(data / "appstat.sqlite")
    counted = range(2, times + 2)  # Each iteration is one attempt; the first one is not counted.
    return (
        [(free[n] - decided[n]) * 1e3 for n in counted],
        [(stored[n] - decided[n]) * 1e3 for n in counted],
        [(trained[("1", n + 1)] - free[n]) * 1e3 for n in counted],
    )


def _bare(folder: Path, size: int, times: int) -> list[float]:
    """Return the milliseconds of writing `size` bytes with their hash and fsync, and reading and hashing them again, `times` times."""
    found = []
    for _ in range(times):
        data = os.urandom(size)
        began = time.perf_counter()
        file = folder / "bare"
        with file.open("wb") as opened:
            opened.write(data)
            hashlib.sha256(data).hexdigest()
            os.fsync(opened.fileno())
        hashlib.sha256(file.read_bytes()).hexdigest()
        found.append((time.perf_counter() - began) * 1e3)
        file.unlink()
    return found
