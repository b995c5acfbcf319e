"""The figure `reports`: the number of reports per second that training processes store durably in AppStat."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Final

from figures.baselines import commit_rate, stream_rate
from figures.cluster import NOOP, cpu_seconds, embedded, ended, kill_all, noop_spec
from figures.frame import Sample
from hopyard.client.types import Statistic

SLOTS: Final = 2
JOBS: Final = 2
ITERATIONS: Final = 20_000
TARGET: Final = 5_000.0
BARE: Final = 20_000


async def measure(folder: Path) -> list[Sample]:
    """Measure once: with SQLite's synchronous=NORMAL and FULL, each with plain SQLite as baseline; and reports lost by killing all."""
    samples = []
    stream = await stream_rate(BARE, 64)
    for synchronous in ("normal", "full"):
        data = folder / synchronous
        rate, cpu = await _rate(data, synchronous)
        payloads, group = _journalled(data / "appstat.sqlite")
        bare = await asyncio.to_thread(commit_rate, folder / f"{synchronous}.bare", payloads, group, synchronous)
        samples.append(
            Sample(
                name=f"into AppStat, synchronous={synchronous.upper()}",
                value=rate,
                unit="reports/s",
                least=TARGET if synchronous == "normal" else None,
                baseline=stream,
                against="messages/s of a bare grpc.aio stream",
                beside={"CPU us a report, all processes": cpu * 1e6, "SQLite alone, rows/s of the same bytes": bare},
            )
        )
    lost, seen = await _killed(folder / "killed")
    samples.append(
        Sample(
            name="lost by kill -9 of every process",
            value=lost,
            unit="reports",
            most=0.0,
            beside={"seen before": seen},
        )
    )
    return samples


async def _rate(data: Path, synchronous: str) -> tuple[float, float]:
    """Return the reports per second and the CPU seconds per report, from the first message of the run to the experiment's end."""
    async with embedded(data, SLOTS, synchronous=synchronous) as (_, client):
        # Start the training processes before the measurement: their start is measured by the figure `start`.
        experiment = await client.create(noop_spec(JOBS, 1), NOOP)
        await ended(client, experiment)
        used = cpu_seconds()
        experiment = await client.extend(experiment, max_iterations=ITERATIONS)
        experiment = await ended(client, experiment)
        done, used = time.time(), cpu_seconds() - used
        found = len(await client.statistics(experiment))
        assert found == JOBS * ITERATIONS, f"{found} reports in AppStat, {JOBS * ITERATIONS} were made"
        began = _first_word(data / "appstat.sqlite")
        reports = JOBS * (ITERATIONS - 1)
        return reports / (done - began), used / reports


def _first_word(database: Path) -> float:
    """Return when the first message of a second run of a job was received, in seconds since the Unix epoch."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        query = "SELECT min(at) FROM journal WHERE kind = 'RunMessage' AND CAST(payload AS TEXT) LIKE '%\"attempt\":2%'"
        (first,) = connection.execute(query).fetchone()
    return float(first)


def _journalled(database: Path) -> tuple[list[tuple[bytes, ...]], int]:
    """Return rows with the average bytes of a report in the journal and the statistics, one per report, and reports per transaction."""
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        query = "SELECT sum(length(payload)), count(DISTINCT at) FROM journal WHERE kind = 'RunMessage'"
        size, commits = connection.execute(query).fetchone()
        query = "SELECT count(*), sum(length(metrics) + length(experiment) + length(job) + 48) FROM statistics"
        count, projected = connection.execute(query).fetchone()
    return [(b"x" * ((size + projected) // count),)] * count, max(count // commits, 1)


async def _killed(data: Path) -> tuple[float, float]:
    """Kill all processes during training. Return how many of the reports that AppStat had shown are lost, and how many it had shown."""
    jobs, iterations = SLOTS, 10 * ITERATIONS
    async with embedded(data, SLOTS) as (_, client):
        experiment = await client.create(noop_spec(jobs, iterations), NOOP)
        seen: list[Statistic] = []
        while len(seen) < ITERATIONS // 4:
            seen = await client.statistics(experiment)
        await asyncio.to_thread(kill_all)
    async with embedded(data, 0) as (_, client):
        left = {(one.job, one.report.position): one.report.metrics for one in await client.statistics(experiment)}
    lost = sum(left.get((one.job, one.report.position)) != one.report.metrics for one in seen)
    return float(lost), float(len(seen))
