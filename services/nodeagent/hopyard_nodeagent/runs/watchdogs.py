"""Watchdogs for limits of a run that its training process cannot enforce itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

_log = logging.getLogger(__name__)

_CHECK_SECONDS: Final = 1.0
_MARGIN_SECONDS: Final = 10.0
"""Additional silence in seconds that is tolerated: on a busy computer, the heartbeats of a process may be late."""

T = TypeVar("T")


class LimitExceeded(Exception):
    """A run exceeded a limit of its experiment, such as memory, and was ended. The user's program is responsible."""


class Guard(Protocol):
    """The interface of a watchdog, which watches one limit of one run, and ends the run when the limit is exceeded."""

    @property
    def excess(self) -> str:
        """Error message about the exceeded limit; empty: the limit was not exceeded."""

    async def watch(self, end: Callable[[], Awaitable[None]]) -> None:
        """Watch until cancelled. When the limit is exceeded, set the error message `excess`, call `end` once, and return.

        `end` kills the process.
        """


class SilenceGuard:
    """A watchdog (`Guard`) for iterations that hang in code that blocks all threads of the process.

    Such a process sends no heartbeats. The process itself detects all other iterations that take too long.

    Args:
        limit: Maximum duration of an iteration in seconds.
        heard: Returns the time of the last message of the process, by `clock`.
        training: Returns whether the run has begun to train. Time before its first True is not checked, because no iteration runs then.
        words: Text that completes the error message "an iteration took longer than N s, ...".
        clock: Returns monotonic seconds.
        check_seconds: Seconds between two checks.
        margin_seconds: Time in seconds that is added to `limit`, because messages may be delayed.
    """

    def __init__(
        self,
        limit: float,
        heard: Callable[[], float],
        training: Callable[[], bool],
        words: str = "let no other thread run, and was ended",
        *,
        clock: Callable[[], float] = time.monotonic,
        check_seconds: float = _CHECK_SECONDS,
        margin_seconds: float = _MARGIN_SECONDS,
    ) -> None:
        self._limit = limit
        self._heard = heard
        self._training = training
        self._words = words
        self._clock = clock
        self._check_seconds = check_seconds
        self._margin_seconds = margin_seconds
        self._began = self._checked = clock()
        self.excess = ""

    def check(self) -> bool:
        """Check the limit once; return whether this or an earlier check found it exceeded. If so, `excess` is the error message."""
        now = self._clock()
        if now - self._checked > 3 * self._check_seconds or not self._training():
            self._began = now  # The agent itself was stopped and received nothing, or the run does not train yet.
        self._checked = now
        if now - max(self._heard(), self._began) > self._limit + self._margin_seconds:
            self.excess = f"an iteration took longer than {self._limit:g} s, {self._words}"
        return bool(self.excess)

    async def watch(self, end: Callable[[], Awaitable[None]]) -> None:
        """Check until cancelled. When the limit is exceeded, set the error message `excess`, call `end`, and return.

        `end` kills the process.
        """
        while not self.check():  # noqa: ASYNC110 (silence causes no event to wait for)
            await asyncio.sleep(self._check_seconds)
        await end()


async def guarded(
    making: Coroutine[Any, Any, T],
    guards: Sequence[Guard],
    end: Callable[[], Awaitable[None]],
    died: type[Exception],
) -> T:
    """Execute a run while watchdogs watch it, and return its result.

    Args:
        making: Coroutine that executes the run.
        guards: The watchdogs.
        end: Kills the process of the run.
        died: The error that `making` raises when the process ends during the run. If a watchdog killed the process, it is replaced by
            LimitExceeded.

    Raises:
        LimitExceeded: A watchdog ended the run.
        Exception: The error of `making`, if no watchdog ended the run.
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
