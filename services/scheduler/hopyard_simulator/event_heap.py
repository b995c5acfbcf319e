"""Virtual time: what happens when, in one order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class EventHeap:
    """Actions by their time; those of the same time in the order in which they were planned.

    Attributes:
        now: Virtual seconds since the beginning.
        taken: Actions that have happened.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.taken = 0
        self._planned: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def later(self, seconds: float, action: Callable[..., None], *arguments: object) -> None:
        """Plans an action so many seconds (>= 0) from now."""
        self._count += 1
        heapq.heappush(self._planned, (self.now + seconds, self._count, action, arguments))

    def at(self, time: float, action: Callable[..., None], *arguments: object) -> None:
        """Plans an action for a time; one that is past is now."""
        self._count += 1
        heapq.heappush(self._planned, (max(time, self.now), self._count, action, arguments))

    def step(self) -> bool:
        """Lets the next thing happen; False: nothing is planned."""
        if not self._planned:
            return False
        self.now, _, action, arguments = heapq.heappop(self._planned)
        self.taken += 1
        action(*arguments)
        return True
