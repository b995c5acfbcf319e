"""Who waits for which job's end."""

from __future__ import annotations

import asyncio
from typing import Final

from hopyard.client.types import Job

_MOST: Final = 10_000
"""Ends that are remembered: of more jobs than are under way in one call."""


class Completions:
    """Jobs that somebody waits for, and those who do."""

    def __init__(self) -> None:
        self._futures: dict[str, list[asyncio.Future[Job]]] = {}
        self._ended: dict[str, Job] = {}

    async def ended(self, job: Job) -> Job:
        """The job as it has ended, which may have been heard before it was asked for.

        Raises:
            Exception: What kept the end from being heard.
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
        """A job as it stands now: one that an extension has revived has not ended any more."""
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
        """Nothing more will be heard."""
        waiting, self._futures = self._futures, {}
        self._ended.clear()
        for futures in waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(error)
