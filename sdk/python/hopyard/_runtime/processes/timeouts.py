"""Timeouts that exclude time in which this process was stalled, such as a suspended machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class TimeLimitExceeded(TimeoutError):
    """Raised by `within` when the time limit is exceeded."""


async def within(seconds: float, what: Awaitable[T]) -> T:
    """Wait for an awaitable and return its result.

    Args:
        seconds: Time limit in seconds, greater than 0. Time in which this process was stalled is excluded.
        what: The awaitable; it is cancelled when the time limit is exceeded.

    Raises:
        TimeLimitExceeded: The time limit was exceeded.
    """
    loop, future = asyncio.get_running_loop(), asyncio.ensure_future(what)
    tick, spent, before, late = min(seconds / 20, 0.5), 0.0, time.monotonic(), False
    timer = loop.call_later(tick, lambda: look())

    def look() -> None:
        nonlocal spent, before, late, timer
        now = time.monotonic()
        spent, before = spent + min(now - before, 2 * tick), now
        if spent < seconds:
            timer = loop.call_later(tick, look)
        elif not future.done():
            late = future.cancel()

    try:
        return await future
    except asyncio.CancelledError:
        if late:
            raise TimeLimitExceeded(f"it took longer than {seconds:g} s") from None
        raise
    finally:
        timer.cancel()
