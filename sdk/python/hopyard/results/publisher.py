"""Bringing an experiment's curves to another tool, once or for as long as it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from hopyard.client.types import Experiment, Job, JobState, Statistic
from hopyard.client.wire import converters

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient

POLL_SECONDS: Final = 2.0


class Sink(AbstractContextManager["Sink"], Protocol):
    """Where curves go. Called from one thread at a time."""

    def update(self, job: Job, statistics: Sequence[Statistic]) -> int:
        """Write what is not there yet of a job, given all its reports; answers how many points that were."""


class Value(NamedTuple):
    """A point of a metric's curve, and when it was reported in seconds since the epoch."""

    metric: str
    position: int
    value: float
    at: float


@dataclass(frozen=True, slots=True)
class Published:
    """What went to the other tool: jobs that were looked at, and points that it had not."""

    jobs: int
    points: int


async def publish(
    client: AsyncClient, experiment: Experiment, sink: Sink, *, follow: bool = False, poll: float = POLL_SECONDS
) -> Published:
    """Bring an experiment's curves to a sink.

    Args:
        client: Where the experiment is.
        experiment: Which.
        sink: Where to.
        follow: Go on until the experiment has ended.
        poll: Seconds between two looks, when it is followed.
    """
    seen: dict[str, tuple[object, ...]] = {}
    points = 0
    while True:
        present = await client.get(experiment)
        for job in await client.jobs(present):
            mark = (job.state, job.attempt, job.position, job.seconds)
            if job.state is JobState.CREATING or seen.get(job.id) == mark:
                continue
            points += await asyncio.to_thread(sink.update, job, await client.statistics(present, job.id))
            seen[job.id] = mark
        if not follow or present.state.ended:
            return Published(len(seen), points)
        await asyncio.sleep(poll)


def values(statistics: Sequence[Statistic]) -> Iterator[Value]:
    """All points of all metrics of one job, by metric and position; parts of an evaluation are combined."""
    at = {one.report.position: one.at for one in statistics}
    for name in sorted({name for one in statistics for name in one.report.metrics}):
        for point in converters.curve(statistics, name):
            yield Value(name, point.position, point.value, at[point.position])
