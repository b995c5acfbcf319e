"""Watchdogs of an agent for limits that a training process cannot enforce itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_MARGIN_SECONDS: Final = 10.0
"""Tolerance for heartbeats, which a training process sends each second, on a busy computer."""

T = TypeVar("T")


class LimitExceeded(Exception):
    """A run exceeded a limit of its experiment and was ended; its code is responsible."""


class Guard(Protocol):
    """Watches one limit."""

    @property
    def excess(self) -> str:
        """A message about the exceeded limit; empty: it was not exceeded."""

    async def watch(self, end: Callable[[], Awaitable[None]]) -> None:
        """Watch until cancelled, or call `end` once when the limit is exceeded, and return."""


class SilenceGuard:
    """Detects hanging iterations in code that blocks all threads of its process.

    The process itself detects all other iterations that take longer than the limit.

    Args:
        limit: Maximum seconds of an iteration.
        heard: Returns the time of the last message of the process.
        training: Returns whether it trains; before that, no iteration can hang.
        words: The end of the message about an excess.
        clock: Monotonic seconds.
        look_seconds: Interval between checks.
        margin_seconds: Additional silence that is allowed.
    """

    def __init__(
        self,
        limit: float,
        heard: Callable[[], float],
        training: Callable[[], bool],
        words: str = "let no other thread run, and was ended",
        *,
        clock: Callable[[], float] = time.monotonic,
        look_seconds: float = _LOOK_SECONDS,
        margin_seconds: float = _MARGIN_SECONDS,
    ) -> None:
        self._limit = limit
        self._heard = heard
        self._training = training
        self._words = words
        self._clock = clock
        self._look_seconds = look_seconds
        self._margin_seconds = margin_seconds
        self._began = self._looked = clock()
        self.excess = ""

    def look(self) -> bool:
        """Check once; return whether the limit is exceeded."""
        now = self._clock()
        if now - self._looked > 3 * self._look_seconds or not self._training():
            self._began = now  # The agent itself was stopped and received nothing, or the run does not train yet.
        self._looked = now
        if now - max(self._heard(), self._began) > self._limit + self._margin_seconds:
            self.excess = f"an iteration took longer than {self._limit:g} s, {self._words}"
        return bool(self.excess)

    async def watch(self, end: Callable[[], Awaitable[None]]) -> None:
        """Check until cancelled; end a run that hangs."""
        while not self.look():  # noqa: ASYNC110 (nobody tells of silence)
            await asyncio.sleep(self._look_seconds)
        await end()


async def guarded(
    making: Coroutine[Any, Any, T],
    guards: Sequence[Guard],
    end: Callable[[], Awaitable[None]],
    died: type[Exception],
) -> T:
    """Execute a run under watch.

    Args:
        making: The run.
        guards: The watchdogs.
        end: Kills its process.
        died: The error of `making` when its process ends during the run.

    Raises:
        LimitExceeded: A watchdog has ended it.
    """
    watching = [asyncio.create_task(guard.watch(end), name=type(guard).__name__) for guard in guards]
    try:
        return await making
    except died as error:
        for guard in guards:
            if guard.excess:
                raise LimitExceeded(guard.excess) from error
        raise
    finally:
        for task in watching:
            task.cancel()
        for task in watching:
            await asyncio.wait([task])
            if not task.cancelled() and (failure := task.exception()) is not None:
                _log.error("%s could not watch its run", task.get_name(), exc_info=failure)
