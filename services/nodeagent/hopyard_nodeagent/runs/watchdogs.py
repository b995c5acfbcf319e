"""What an agent watches in a run from outside, because its process cannot be trusted to see it itself."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

_log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
_MARGIN_SECONDS: Final = 10.0
"""A process that trains gives a sign of life each second; it may be this late on a busy machine."""

T = TypeVar("T")


class LimitExceeded(Exception):
    """A run went beyond what its experiment allows, and was ended: the fault of the code that it ran."""


class Guard(Protocol):
    """Watches one limit."""

    @property
    def excess(self) -> str:
        """What was found beyond the limit, in words; empty: nothing."""

    async def watch(self, end: Callable[[], Awaitable[None]]) -> None:
        """Look until cancelled, or call `end` once when the limit is exceeded, and return."""


class SilenceGuard:
    """Finds iterations that hang in code which lets no other thread of their process run.

    All others are found by the process itself, as soon as they take longer than the limit.

    Args:
        limit: Seconds that an iteration may take.
        heard: When the process was heard last, on the clock.
        training: Whether it trains; before that, no iteration can hang.
        words: What is said of an excess, behind the limit.
        clock: Monotonic seconds.
        look_seconds: Between two looks.
        margin_seconds: Silence beyond the limit that is no excess yet.
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
        """Look once; answers whether the limit is exceeded."""
        now = self._clock()
        if now - self._looked > 3 * self._look_seconds or not self._training():
            self._began = now  # this agent itself was stopped and could hear nobody, or there is nothing to wait for
        self._looked = now
        if now - max(self._heard(), self._began) > self._limit + self._margin_seconds:
            self.excess = f"an iteration took longer than {self._limit:g} s, {self._words}"
        return bool(self.excess)

    async def watch(self, end: Callable[[], Awaitable[None]]) -> None:
        """Look until cancelled; end what hangs."""
        while not self.look():  # noqa: ASYNC110 (nobody tells of silence)
            await asyncio.sleep(self._look_seconds)
        await end()


async def guarded(
    making: Coroutine[Any, Any, T],
    guards: Sequence[Guard],
    end: Callable[[], Awaitable[None]],
    died: type[Exception],
) -> T:
    """Make a run while guards watch it.

    Args:
        making: The run.
        guards: What watches it.
        end: Ends its process at once.
        died: What `making` raises when its process has ended in the middle of it.

    Raises:
        LimitExceeded: A guard has ended it.
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
