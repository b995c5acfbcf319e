from __future__ import annotations

import random

import pytest

from hopyard._net.rpc import Backoff, retry
from hopyard.errors import NotFound, Unavailable

pytestmark = pytest.mark.quick


class World:
    """A clock that only `sleep` moves, and a call that fails a number of times."""

    def __init__(self, failures: int, error: Exception | None = None) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.tries = 0
        self._failures = failures
        self._error = error or Unavailable("down")

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    async def call(self) -> str:
        self.tries += 1
        if self.tries <= self._failures:
            raise self._error
        return "answer"


async def test_it_tries_until_there_is_an_answer() -> None:
    world = World(failures=5)
    told: list[float] = []
    answer = await retry(
        world.call,
        deadline=None,
        clock=world.clock,
        sleep=world.sleep,
        rng=random.Random(1),
        on_failure=lambda error, wait: told.append(wait),
    )
    assert answer == "answer"
    assert world.tries == 6
    assert world.waits == told
    assert all(0 <= wait <= bound for wait, bound in zip(world.waits, [0.1, 0.2, 0.4, 0.8, 1.6], strict=True))


async def test_the_deadline_ends_it_with_the_last_failure() -> None:
    world = World(failures=10_000)
    with pytest.raises(Unavailable, match="down"):
        await retry(world.call, deadline=30.0, clock=world.clock, sleep=world.sleep, rng=random.Random(2))
    assert 20 < world.now < 30
    assert all(wait <= 5.0 for wait in world.waits)


async def test_only_unavailable_is_tried_again() -> None:
    world = World(failures=1, error=NotFound("no such job"))
    with pytest.raises(NotFound):
        await retry(world.call, deadline=None, clock=world.clock, sleep=world.sleep, rng=random.Random(3))
    assert world.tries == 1


def test_waits_are_jittered_over_the_whole_range_and_bounded_for_ever() -> None:
    backoff = Backoff(first=1.0, most=60.0)
    rng = random.Random(4)
    waits = [backoff.wait(1, rng) for _ in range(1000)]
    assert min(waits) < 0.05
    assert max(waits) > 0.95
    assert backoff.bound(10**9) == 60.0


def test_a_backoff_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="0 < first <= most"):
        Backoff(first=2.0, most=1.0)
