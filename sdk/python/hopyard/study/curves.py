"""Reads the learning curves of evaluations. The curve of a forked job begins with the reports of the jobs that it was forked from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol
from weakref import WeakValueDictionary

from hopyard.client.curve_lineage import ancestor
from hopyard.client.types import Experiment, Job, Statistic
from hopyard.errors import NotFound, Unavailable

_PAUSES: Final = (0.1,) * 20 + (1.0,) * 100
"""Seconds between reads of reports that AppStat does not have yet, for instance because it is restarting."""

_AT_A_TIME: Final = 16
_KEPT: Final = 1000


class Reader(Protocol):
    """The methods of `AsyncClient` that `Curves` needs."""

    async def job(self, experiment: str, job: str) -> Job:
        """Return the job with the id `job` of the experiment with the id `experiment`; see `AsyncClient.job`."""
        ...

    async def statistics(self, experiment: str, job: str) -> list[Statistic]:
        """Return the accepted reports of the job `job` of `experiment` (ids); see `AsyncClient.statistics`."""
        ...

    async def experiments(self) -> list[Experiment]:
        """Return all experiments; see `AsyncClient.experiments`."""
        ...


class Curves:
    """Reads and caches the reports of the jobs of a study.

    Args:
        reader: The client of the cluster.
        experiment: The experiment of the study.
        sleep: Coroutine function that waits for a number of seconds between reads. AppStat may have a report slightly
            later than the scheduler announces the state of its job.
    """

    def __init__(
        self, reader: Reader, experiment: Experiment, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._reader, self._experiment, self._sleep = reader, experiment, sleep
        self._own: dict[str, list[Statistic]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._room = asyncio.Semaphore(_AT_A_TIME)

    async def of(self, job: Job, upto: int) -> list[Statistic]:
        """Return the reports up to position `upto` (inclusive), in order, beginning with those of the jobs that `job` was forked from.

        Raises:
            Unavailable: AppStat does not have all reports after about 100 seconds of retries.
        """
        found: list[Statistic] = []
        passed = set[str]()
        while True:
            parent = ancestor(job, upto, passed)
            begin = job.fork_position if parent is not None else 0
            own = await self._reports(job, upto) if upto > begin else []
            found[:0] = [one for one in own if begin < one.report.position <= upto]
            if parent is None:
                return found
            passed.add(job.id)
            upto, job = min(begin, upto), await self._job(job.experiment, parent)

    async def _reports(self, job: Job, upto: int) -> list[Statistic]:
        async with self._locks.setdefault(job.id, asyncio.Lock()):
            known = self._own.get(job.id, [])
            pauses = iter(_PAUSES)
            while not known or known[-1].report.position < upto:
                async with self._room:
                    known = await self._reader.statistics(job.experiment, job.id)
                if known and known[-1].report.position >= upto:
                    break
                if (pause := next(pauses, None)) is None:
                    raise Unavailable(
                        f"experiment {job.experiment}: what job {job.id} reported up to {upto} cannot be read yet; ask again later"
                    )
                await self._sleep(pause)
            self._own[job.id] = known
            if len(self._own) > _KEPT:
                del self._own[next(iter(self._own))]
            return known

    async def _job(self, experiment: str, name: str) -> Job:
        """Return the job with the id `name` of the experiment with the id `experiment`, or of another one in its group.

        Job ids are unique within a group.

        Raises:
            NotFound: No experiment of the group has such a job.
        """
        try:
            return await self._reader.job(experiment, name)
        except NotFound:
            group = self._experiment.group
            for other in await self._reader.experiments():
                if other.group == group and other.id != experiment:
                    try:
                        return await self._reader.job(other.id, name)
                    except NotFound:
                        continue
            raise
