"""Combines training requests that are made at about the same time into one call to the scheduler."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from hopyard.client.types import Job
from hopyard.errors import Conflict, HopyardError, InvalidInput

MOST: Final = 1000
"""Maximum number of requests in one call."""

_FIRST: Final = "jobs[0]."
"""The scheduler's name of the only request of a call in its error messages. It is removed for callers, who made a single request."""


class TrainingRequest(NamedTuple):
    """A request to train a configuration up to a position.

    Attributes:
        configuration: A value for each hyperparameter of the space.
        position: The position to train to, in the experiment's unit.
        request: Key of the request, which makes it idempotent.
        named: Whether the caller chose the key; False: it was derived from configuration and position.
    """

    configuration: Mapping[str, Any]
    position: int
    request: str
    named: bool = False


def taken(value: Any) -> Any:
    """Return a copy of the configuration `value` (mappings and lists copied recursively), with NumPy scalars as Python numbers."""
    if isinstance(value, Mapping):
        return {name: taken(inner) for name, inner in value.items()}
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        return value.item()
    return [taken(inner) for inner in value] if isinstance(value, list) else value


class _Asked(NamedTuple):
    """A request that is queued or in a batch, with one future for each caller that waits for its job."""

    wish: TrainingRequest
    futures: list[asyncio.Future[Job]]


Send = Callable[[Sequence[TrainingRequest]], Awaitable[Sequence[Job]]]
"""Sends requests with distinct keys in one call and returns their jobs in order. Either all requests are accepted or none."""


class Batcher:
    """Collects requests and sends them in batches, one call at a time. Requests made during a call are sent with the next one.

    Args:
        send: Coroutine function that sends requests with distinct keys in one call and returns their jobs in the same order.
            Either all requests are accepted or it raises an error and none is.
        pause: Coroutine function that delays each call, so that requests of other threads can join the batch; None: a call
            contains only requests of the same iteration of the event loop.
        most: Maximum number of requests in one call, at least 1.
    """

    def __init__(self, send: Send, pause: Callable[[], Awaitable[None]] | None = None, most: int = MOST) -> None:
        self._send, self._pause, self._most = send, pause, most
        self._waiting: deque[tuple[TrainingRequest, asyncio.Future[Job]]] = deque()
        self._pump: asyncio.Task[None] | None = None

    async def job(self, wish: TrainingRequest) -> Job:
        """Send the request `wish` with the next batch and return its job. If the caller is cancelled before that, it is not sent.

        Raises:
            HopyardError: The error for this request. An invalid request in the same batch does not affect others.
        """
        future: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._waiting.append((wish, future))
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._work(), name="requests of a study")
        return await future

    async def close(self) -> None:
        """Cancel the current call, and send none of the queued requests. Each waiting `job` raises `Conflict`."""
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
        """Remove the requests of the next batch from the queue.

        Equal requests are merged. A request with the key of a different request in the batch stays in the queue.
        """
        found: dict[str, _Asked] = {}
        later: list[tuple[TrainingRequest, asyncio.Future[Job]]] = []
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
            # A Conflict may concern a single request: its chosen key belongs to a different request.
            chosen = isinstance(error, Conflict) and any(asked.wish.named for asked in batch)
            if len(batch) == 1 and isinstance(error, InvalidInput):
                _fail(batch, InvalidInput(str(error).removeprefix(_FIRST)))
                return
            if len(batch) == 1 or not (chosen or isinstance(error, InvalidInput)):
                _fail(batch, error)
                return
            # One invalid request rejects the whole batch. Split the batch to find it and to accept the others.
            middle = len(batch) // 2
            await self._ask(batch[:middle])
            await self._ask(batch[middle:])
        except Exception as error:  # noqa: BLE001 - the callers get the error, and later batches are still sent
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
