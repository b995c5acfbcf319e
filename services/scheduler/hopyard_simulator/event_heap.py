"""Virtual time: scheduled actions in a defined order."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class EventHeap:
    """Actions ordered by time, then by the order in which they were scheduled.

    Attributes:
        now: Virtual seconds since the beginning.
        taken: Number of executed actions.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.taken = 0
        self._planned: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def later(self, seconds: float, action: Callable[..., None], *arguments: object) -> None:
        """Schedule an action `seconds` (>= 0) from now."""
        self._count += 1
        heapq.heappush(self._planned, (self.now + seconds, self._count, action, arguments))

    def at(self, time: float, action: Callable[..., None], *arguments: object) -> None:
        """Schedule an action at a time; a past time means now."""
        self._count += 1
        heapq.heappush(self._planned, (max(time, self.now), self._count, action, arguments))

    def step(self) -> bool:
        """Execute the next action; return False if there is none."""
        if not self._planned:
            return False
        self.now, _, action, arguments = heapq.heappop(self._planned)
        self.taken += 1
        action(*arguments)
        return True
