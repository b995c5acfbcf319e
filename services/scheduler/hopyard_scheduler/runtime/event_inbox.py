"""Inboxes: queues of events for streams that wait for the answer of their policy process. Answers themselves are never queued."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from hopyard.policy.vocabulary import StreamId

T = TypeVar("T")


class EventInboxes(Generic[T]):
    """One queue of items per stream that must wait for an answer of its policy process.

    Args:
        awaits_answer: Returns True while an up-call of the stream is unanswered, so that items of the stream must wait.
    """

    def __init__(self, awaits_answer: Callable[[StreamId], bool]) -> None:
        self._thinks = awaits_answer
        self._waiting: dict[StreamId, deque[T]] = {}

    def keep(self, stream: StreamId, item: T) -> bool:
        """Queue an item if its stream waits for an answer of its policy or has older items in the queue.

        Args:
            stream: The id of the stream.
            item: The item.

        Returns:
            True if the item was queued. False if it can be handled at once; the item is not queued then.
        """
        waiting = self._waiting.get(stream)
        if waiting is None:
            if not self._thinks(stream):
                return False
            waiting = self._waiting[stream] = deque()
        waiting.append(item)
        return True

    def waiting(self, stream: StreamId) -> int:
        """Return the number of queued items of a stream, given by its id."""
        return len(self._waiting.get(stream, ()))

    @property
    def ready(self) -> bool:
        """True if `take` would return an item: a stream with queued items does not wait for its policy."""
        return any(not self._thinks(name) for name in self._waiting)

    def take(self) -> T | None:
        """Remove and return the next item that can be handled, round-robin over the streams; None: there is none."""
        name = next((name for name in self._waiting if not self._thinks(name)), None)
        if name is None:
            return None
        waiting = self._waiting.pop(name)
        item = waiting.popleft()
        if waiting:
            self._waiting[name] = waiting
        return item
