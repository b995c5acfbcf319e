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
    """A configuration to be trained to a position; `request` names the request, and `named` says that its caller chose the name."""

    configuration: Mapping[str, Any]
    position: int
    request: str
    named: bool = False


def taken(value: Any) -> Any:
    """A configuration as it is now, whatever its owner makes of it later; numbers of NumPy, and the like, as Python's own."""
    if isinstance(value, Mapping):
        return {name: taken(inner) for name, inner in value.items()}
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        return value.item()
    return [taken(inner) for inner in value] if isinstance(value, list) else value


class _Asked(NamedTuple):
    """A wish, and all who have it."""

    wish: Wish
    futures: list[asyncio.Future[Job]]


Send = Callable[[Sequence[Wish]], Awaitable[Sequence[Job]]]
"""Asks for several of different names at once, all or none; answers their jobs in their order."""


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
        _fail(
            [_Asked(wish, [future]) for wish, future in self._waiting],
            Conflict("the study was closed before this was asked for"),
        )
        self._waiting.clear()

    async def _work(self) -> None:
        while self._waiting:
            if self._pause is not None:
                await self._pause()
            batch = self._next()
            try:
                await self._ask(batch)
            finally:
                _fail(batch, Conflict("the study was closed before this was answered"))

    def _next(self) -> list[_Asked]:
        """Takes the next ones: equal ones are one, and another one of the same name waits."""
        found: dict[str, _Asked] = {}
        later: list[tuple[Wish, asyncio.Future[Job]]] = []
        while self._waiting and len(found) < self._most:
            wish, future = self._waiting.popleft()
            if future.done():
                continue
            asked = found.setdefault(wish.request, _Asked(wish, []))
            if asked.wish == wish:
                asked.futures.append(future)
            else:
                later.append((wish, future))
        self._waiting.extendleft(reversed(later))
        return list(found.values())

    async def _ask(self, batch: Sequence[_Asked]) -> None:
        if not batch:
            return
        try:
            jobs = await self._send([asked.wish for asked in batch])
        except HopyardError as error:
            # A name that stands for something else is refused as what cannot be.
            chosen = isinstance(error, Conflict) and any(asked.wish.named for asked in batch)
            if len(batch) == 1 and isinstance(error, InvalidInput):
                _fail(batch, InvalidInput(str(error).removeprefix(_FIRST)))
                return
            if len(batch) == 1 or not (chosen or isinstance(error, InvalidInput)):
                _fail(batch, error)
                return
            # All or none: whoever asked for what cannot be must not spoil it for the others.
            middle = len(batch) // 2
            await self._ask(batch[:middle])
            await self._ask(batch[middle:])
        except Exception as error:  # noqa: BLE001 - it goes to those who asked, and the next ones are asked for
            _fail(batch, error)
        else:
            for asked, job in zip(batch, jobs, strict=True):
                for future in asked.futures:
                    if not future.done():
                        future.set_result(job)


def _fail(batch: Sequence[_Asked], error: Exception) -> None:
    for asked in batch:
        for future in asked.futures:
            if not future.done():
                future.set_exception(error)
