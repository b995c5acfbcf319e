"""Retries after `Unavailable` with exponential backoff and full jitter, until a deadline."""

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
    """The times to wait between attempts: random, with a bound that grows exponentially with the number of failures.

    Attributes:
        first: Upper bound of the first wait in seconds (> 0).
        most: Upper bound of all waits in seconds (>= first).
        factor: Growth of the bound with each failure (>= 1).
    """

    first: float = 0.1
    most: float = 5.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        """Raise ValueError if a value is out of range."""
        if not (0 < self.first <= self.most and self.factor >= 1):
            raise ValueError(f"backoff needs 0 < first <= most and factor >= 1, found {self}")

    def bound(self, failures: int) -> float:
        """Return the upper bound in seconds of the wait after `failures` (>= 1) consecutive failures."""
        # The exponent is limited, because the float would overflow before a client gives up.
        return min(self.most, self.first * self.factor ** min(failures - 1, 64))

    def wait(self, failures: int, rng: random.Random) -> float:
        """Return the seconds to wait after `failures` (>= 1) consecutive failures.

        It is drawn from `rng`, uniformly between 0 and `bound(failures)` (full jitter).
        """
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
    """Repeat a call while it raises `Unavailable` and the next attempt can begin before the deadline.

    Args:
        call: Starts one attempt; it must be idempotent.
        deadline: Seconds from now within which a new attempt may begin; None: no limit.
        backoff: Waits between the attempts; None: the defaults of `Backoff`.
        clock: Returns monotonic seconds.
        sleep: Waits for the given seconds.
        rng: Source of the jitter; None: a new source, which differs in each process.
        on_failure: Called after each failure that is retried, with the error and the seconds until the next attempt.

    Returns:
        The result of the first attempt that succeeds.

    Raises:
        Unavailable: Error of the last attempt, if the next one would begin after the deadline.
    """
    end = None if deadline is None else clock() + deadline
    failures = 0
    while True:
        try:
            return await call()
        except Unavailable as error:
            failures += 1
            # Jitter keeps clients from retrying at the same moment. It is not seeded, because nothing reproducible depends on it.
            # It is made after a failure, because that takes longer than many calls.
            rng, backoff = rng or random.Random(), backoff or Backoff()
            wait = backoff.wait(failures, rng)
            if end is not None and clock() + wait >= end:
                raise
            if on_failure is not None:
                on_failure(error, wait)
        await sleep(wait)
