"""Retries: exponential backoff with full jitter, for `Unavailable` only, until a deadline."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from hopyard.errors import Unavailable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to wait before the next try.

    Attributes:
        first: Upper bound of the first wait, in seconds (> 0).
        most: Upper bound of every wait, in seconds (>= first).
        factor: What the bound grows by with each failure (>= 1).
    """

    first: float = 0.1
    most: float = 5.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        """Refuse bounds that make no sense."""
        if not (0 < self.first <= self.most and self.factor >= 1):
            raise ValueError(f"backoff needs 0 < first <= most and factor >= 1, found {self}")

    def bound(self, failures: int) -> float:
        """Upper bound of the wait after `failures` (>= 1) failures in a row, in seconds."""
        # The exponent is capped because a float overflows long before a client gives up.
        return min(self.most, self.first * self.factor ** min(failures - 1, 64))

    def wait(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after `failures` failures in a row: uniform in [0, bound] (full jitter)."""
        return rng.uniform(0.0, self.bound(failures))


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    deadline: float | None,
    backoff: Backoff | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    rng: random.Random | None = None,
    on_failure: Callable[[Unavailable, float], object] | None = None,
) -> T:
    """Call until it answers, or raises something else than `Unavailable`, or the deadline would pass while waiting.

    Args:
        call: Starts one try; it must be idempotent.
        deadline: Seconds from now in which a new try may begin; None: for ever (until cancelled).
        backoff: Waits between the tries.
        clock: Monotonic seconds.
        sleep: Waits for so many seconds.
        rng: Source of the jitter; without one, a fresh source that differs in every process.
        on_failure: Told of each failure and of the seconds until the next try, for instance to log it.

    Raises:
        Unavailable: The last try's, when the deadline leaves no time for another.
    """
    waits = backoff or Backoff()
    # Jitter protects servers from clients in step; nothing that is to repeat depends on it.
    source = rng or random.Random()
    end = None if deadline is None else clock() + deadline
    failures = 0
    while True:
        try:
            return await call()
        except Unavailable as error:
            failures += 1
            wait = waits.wait(failures, source)
            if end is not None and clock() + wait >= end:
                raise
            if on_failure is not None:
                on_failure(error, wait)
        await sleep(wait)
