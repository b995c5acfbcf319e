"""Requests of one moment go out in one call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hopyard.client.types import Job
from hopyard.errors import Conflict, HopyardError, InvalidInput

MOST: Final = 1000
"""Requests in one call."""

_FIRST: Final = "jobs[0]."
"""What the cluster calls the only request of a call: whoever asked knows of no others."""


class Wish(NamedTuple):
    """A configuration to be trained to a position; `request` names the request."""

    configuration: Mapping[str, Any]
    position: int
    request: str


Send = Callable[[Sequence[Wish]], Awaitable[Sequence[Job]]]
"""Asks for several at once, all or none; answers their jobs in their order."""


class Batcher:
    """Collects what is wanted. One call is under way at a time: what comes meanwhile goes out with the next one.

    Args:
        send: Asks for them.
        pause: Waited for before each call, so that requests of other threads can join it; None: for those of the same turn of the
            event loop alone.
        most: Requests in one call, at least 1.
    """

    def __init__(self, send: Send, pause: Callable[[], Awaitable[None]] | None = None, most: int = MOST) -> None:
        self._send, self._pause, self._most = send, pause, most
        self._waiting: deque[tuple[Wish, asyncio.Future[Job]]] = deque()
        self._pump: asyncio.Task[None] | None = None

    async def job(self, wish: Wish) -> Job:
        """The job of a request. A caller that is cancelled before the call is made is left out of it.

        Raises:
            HopyardError: What was answered to it; what is wrong with others of the same call is theirs alone.
        """
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.append((wish, future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._work(), name="requests of a study")
        return await future

    async def close(self) -> None:
        """Ask for nothing more. What has not been answered raises Conflict."""
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
        for _, future in self._waiting:
            _fail(future, Conflict("the study was closed before this was asked for"))
        self._waiting.clear()

    async def _work(self) -> None:
        while self._waiting:
            if self._pause is not None:
                await self._pause()
            batch: list[tuple[Wish, asyncio.Future[Job]]] = []
            while self._waiting and len(batch) < self._most:
                wish, future = self._waiting.popleft()
                if not future.done():
                    batch.append((wish, future))
            try:
                await self._ask(batch)
            finally:
                for _, future in batch:
                    _fail(future, Conflict("the study was closed before this was answered"))

    async def _ask(self, batch: Sequence[tuple[Wish, asyncio.Future[Job]]]) -> None:
        if not batch:
            return
        try:
            jobs = await self._send([wish for wish, _ in batch])
        except InvalidInput as error:
            if len(batch) == 1:
                _fail(batch[0][1], InvalidInput(str(error).removeprefix(_FIRST)))
                return
            # All or none: whoever asked for what cannot be must not spoil it for the others.
            middle = len(batch) // 2
            await self._ask(batch[:middle])
            await self._ask(batch[middle:])
        except HopyardError as error:
            for _, future in batch:
                _fail(future, error)
        else:
            for (_, future), job in zip(batch, jobs, strict=True):
                if not future.done():
                    future.set_result(job)


def _fail(future: asyncio.Future[Job], error: HopyardError) -> None:
    if not future.done():
        future.set_exception(error)
