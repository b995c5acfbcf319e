"""Inboxes: queues of outside events for experiments whose policy process is being asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from hopyard.policy.vocabulary import StreamId

T = TypeVar("T")


class Inboxes(Generic[T]):
    """A queue of items for each experiment that cannot take them now.

    Args:
        thinks: Returns True while an experiment's policy is being asked, so that its items must wait.
    """

    def __init__(self, thinks: Callable[[StreamId], bool]) -> None:
        self._thinks = thinks
        self._waiting: dict[StreamId, deque[T]] = {}

    def keep(self, experiment: StreamId, item: T) -> bool:
        """Queues an item if its experiment cannot take it now or has older items in the queue.

        Returns:
            False if the item can be handled at once; it is not queued then.
        """
        waiting = self._waiting.get(experiment)
        if waiting is None:
            if not self._thinks(experiment):
                return False
            waiting = self._waiting[experiment] = deque()
        waiting.append(item)
        return True

    def waiting(self, experiment: StreamId) -> int:
        """Returns the number of queued items of an experiment."""
        return len(self._waiting.get(experiment, ()))

    @property
    def ready(self) -> bool:
        """True if an experiment with queued items can take one now."""
        return any(not self._thinks(name) for name in self._waiting)

    def take(self) -> T | None:
        """Removes and returns the next item that can be handled, round-robin over experiments; None: there is none."""
        name = next((name for name in self._waiting if not self._thinks(name)), None)
        if name is None:
            return None
        waiting = self._waiting.pop(name)
        item = waiting.popleft()
        if waiting:
            self._waiting[name] = waiting
        return item
