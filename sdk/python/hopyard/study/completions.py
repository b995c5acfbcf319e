"""Lets evaluations wait for the end of their jobs."""

from __future__ import annotations

import asyncio
from typing import Final

from hopyard.client.types import Job

_MOST: Final = 10_000
"""Number of ended jobs that are cached; more than the number of requests in one call."""


class Completions:
    """Futures of evaluations that wait for the end of a job, by job id.

    The task that watches the experiment passes each change of a job to `heard`, which completes the job's futures when it has ended.
    The final states of the most recently ended jobs are cached for later calls of `ended`.
    """

    def __init__(self) -> None:
        self._futures: dict[str, list[asyncio.Future[Job]]] = {}
        self._ended: dict[str, Job] = {}

    async def ended(self, job: Job) -> Job:
        """Wait until a job has ended and return its final state. Return at once if the cache of ended jobs contains it.

        Raises:
            Exception: The error that was passed to `fail` during the wait.
        """
        if job.id in self._ended:
            return self._ended[job.id]
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(job.id, []).append(future)
        try:
            return await future
        finally:
            left = self._futures.get(job.id)
            if left is not None and future in left:
                left.remove(future)
                if not left:
                    del self._futures[job.id]

    def heard(self, job: Job) -> None:
        """Record the current state of a job, and complete the futures that wait for it if it has ended.

        The cache of ended jobs receives a job that has ended. A job that an extension of the experiment has restarted is removed
        from it.
        """
        if not job.state.ended:
            self._ended.pop(job.id, None)
            return
        self._ended[job.id] = job
        if len(self._ended) > _MOST:
            del self._ended[next(iter(self._ended))]
        for future in self._futures.pop(job.id, []):
            if not future.done():
                future.set_result(job)

    def fail(self, error: Exception) -> None:
        """Fail all waiting futures with `error`, and clear the cache of ended jobs, because no further states will arrive.

        Later calls of `ended` wait as usual.
        """
        waiting, self._futures = self._futures, {}
        self._ended.clear()
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
