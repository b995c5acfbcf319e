"""Virtual time: actions that are executed in order of their scheduled time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class EventHeap:
    """A virtual clock with scheduled actions, ordered by time and then by the order of scheduling.

    Attributes:
        now: Virtual seconds since the beginning of the simulation.
        taken: Number of executed actions.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.taken = 0
        self._planned: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def later(self, seconds: float, action: Callable[..., None], *arguments: object) -> None:
        """Schedule an action.

        Args:
            seconds: Virtual seconds from now, 0 or more.
            action: The function to call.
            *arguments: The arguments of the function.
        """
        self._count += 1
        heapq.heappush(self._planned, (self.now + seconds, self._count, action, arguments))

    def at(self, time: float, action: Callable[..., None], *arguments: object) -> None:
        """Schedule an action at a virtual time. A time in the past is replaced by the present time.

        Args:
            time: Virtual seconds since the beginning of the simulation.
            action: The function to call.
            *arguments: The arguments of the function.
        """
        self._count += 1
        heapq.heappush(self._planned, (max(time, self.now), self._count, action, arguments))

    def step(self) -> bool:
        """Set the clock to the time of the earliest scheduled action and execute it. Return False if no action is scheduled."""
        if not self._planned:
            return False
        self.now, _, action, arguments = heapq.heappop(self._planned)
        self.taken += 1
        action(*arguments)
        return True
