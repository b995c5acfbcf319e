"""Requests of one moment go out in one call."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hopyard.client.types import Job
from hopyard.errors import Conflict, InvalidInput

MOST: Final = 1000
"""Requests in one call."""


class Wish(NamedTuple):
    """A configuration to be trained to a position; `request` names the request."""

    configuration: Mapping[str, Any]
    position: int
    request: str


Send = Callable[[Sequence[Wish]], Awaitable[Sequence[Job]]]
"""Asks for several at once, all or none; answers their jobs in their order. No two of one call have the same name."""


class _Asked(NamedTuple):
    """A wish, and all who have it."""

    wish: Wish
    futures: list[asyncio.Future[Job]]


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
        """The job of a request. Equal ones of a call are one; a caller that is cancelled before the call is made is left out of it.

        Raises:
            Exception: What was answered to it. Where others of the same call cannot be asked for (InvalidInput), that is theirs alone.
        """
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.append((wish, future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._work(), name="requests of a study")
        return await future

    async def close(self) -> None:
        """Ask for nothing more. What has not been answered raises Conflict."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        waiting = [_Asked(wish, [future]) for wish, future in self._waiting]
        self._waiting.clear()
        _fail(waiting, Conflict("the study was closed before this was asked for"))

    async def _work(self) -> None:
        while self._waiting:
            if self._pause is not None:
                await self._pause()
            batch = self._take()
            try:
                await self._ask(batch)
            finally:
                _fail(batch, Conflict("the study was closed before this was answered"))

    def _take(self) -> list[_Asked]:
        """What goes out with the next call. Other wishes by a name that is among these wait for the call after it."""
        found: dict[str, _Asked] = {}
        later = []
        while self._waiting and len(found) < self._most:
            wish, future = self._waiting.popleft()
            if future.done():
                continue
            one = found.setdefault(wish.request, _Asked(wish, []))
            if one.wish == wish:
                one.futures.append(future)
            else:
                later.append((wish, future))
        self._waiting.extendleft(reversed(later))
        return list(found.values())

    async def _ask(self, batch: Sequence[_Asked]) -> None:
        if not batch:
            return
        try:
            jobs = await self._send([one.wish for one in batch])
        except InvalidInput as error:
            if len(batch) == 1:
                _fail(batch, error)
                return
            # All or none: whoever asked for what cannot be must not spoil it for the others.
            middle = len(batch) // 2
            await self._ask(batch[:middle])
            await self._ask(batch[middle:])
        except Exception as error:  # noqa: BLE001 - whatever it is, they are told
            _fail(batch, error)
        else:
            for one, job in zip(batch, jobs, strict=True):
                for future in one.futures:
                    if not future.done():
                        future.set_result(job)


def _fail(batch: Sequence[_Asked], error: Exception) -> None:
    for future in (future for one in batch for future in one.futures):
        if not future.done():
            future.set_exception(error)
