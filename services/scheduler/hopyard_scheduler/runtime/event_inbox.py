"""Events from outside for experiments whose policies think: kept in order, as if they had not arrived yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from hopyard.policy.vocabulary import StreamId

T = TypeVar("T")


class Inboxes(Generic[T]):
    """An inbox for each experiment that has something waiting.

    Args:
        thinks: Whether an experiment's policy thinks, so that nothing of it may be taken.
    """

    def __init__(self, thinks: Callable[[StreamId], bool]) -> None:
        self._thinks = thinks
        self._waiting: dict[str, deque[T]] = {}

    def keep(self, experiment: StreamId, item: T) -> bool:
        """Keeps an item that may not be taken now, behind those that wait already. False: nothing stands against it."""
        waiting = self._waiting.get(experiment)
        if waiting is None:
            if not self._thinks(experiment):
                return False
            waiting = self._waiting[experiment] = deque()
        waiting.append(item)
        return True

    def waiting(self, experiment: StreamId) -> int:
        """How many items wait for an experiment."""
        return len(self._waiting.get(experiment, ()))

    @property
    def ready(self) -> bool:
        """Whether an item may be taken."""
        return any(not self._thinks(StreamId(name)) for name in self._waiting)

    def take(self) -> T | None:
        """The next item that may be taken, of each experiment in turn; None: there is none."""
        name = next((name for name in self._waiting if not self._thinks(StreamId(name))), None)
        if name is None:
            return None
        waiting = self._waiting.pop(name)
        item = waiting.popleft()
        if waiting:
            self._waiting[name] = waiting  # Behind the others.
        return item
