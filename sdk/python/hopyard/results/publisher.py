"""Publishes the curves of an experiment to another tool, once or until the experiment ends."""

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
    """A destination for the curves of an experiment, such as MLflow. It is a context manager, and `publish` calls `update`.

    Calls come from one thread at a time.
    """

    def update(self, job: Job, statistics: Sequence[Statistic]) -> int:
        """Write the points of a job's curves that the destination does not have.

        Args:
            job: The job in its current state.
            statistics: All reports of the job.

        Returns:
            Number of points that the destination did not have.
        """


class Value(NamedTuple):
    """A point of the curve of a metric.

    Attributes:
        metric: Name of the metric.
        position: The position, in the experiment's unit.
        value: Value of the metric.
        at: Time of the report in seconds since the Unix epoch.
    """

    metric: str
    position: int
    value: float
    at: float


@dataclass(frozen=True, slots=True)
class Published:
    """The result of `publish`.

    Attributes:
        jobs: Number of jobs of the experiment whose curves were passed to the sink during the call, with new points or without.
        points: Number of points that the destination did not have before the call.
    """

    jobs: int
    points: int


async def publish(
    client: AsyncClient, experiment: Experiment, sink: Sink, *, follow: bool = False, poll: float = POLL_SECONDS
) -> Published:
    """Publish the curves of an experiment to a sink. Errors of the client and of the sink are raised to the caller.

    Args:
        client: The client of the cluster.
        experiment: The experiment.
        sink: The destination.
        follow: True: also publish the points that jobs report during the call, and return after the experiment has ended. False:
            publish the points that exist now, and return.
        poll: Seconds between two queries of the jobs. It has no effect unless `follow` is True.
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
    """Yield all points of all metrics of one job, ordered by metric and position.

    Reports on parts of the data at one position become one point: the mean of their values, weighted by their number of
    examples. A report on all data at the same position is then ignored.

    Args:
        statistics: All reports of the job, ordered by position.
    """
    at = {one.report.position: one.at for one in statistics}
    for name in sorted({name for one in statistics for name in one.report.metrics}):
        for point in converters.curve(statistics, name):
            yield Value(name, point.position, point.value, at[point.position])
