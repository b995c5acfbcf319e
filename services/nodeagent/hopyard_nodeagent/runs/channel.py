"""A run's channel to the scheduler, without I/O: sequence numbers, acknowledgements, repetition.

Outgoing messages are unnumbered until the session can send them; until then a new one may be merged into the last. A
numbered message never changes and is kept until the scheduler acknowledges it. After a reconnection all unacknowledged
messages are sent again, in order. Incoming commands are accepted exactly once and in order: earlier numbers are
duplicates, and commands after a gap are ignored until the scheduler has filled it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Numbered(Generic[Body]):
    """A message with its sequence number in the channel (1, 2, 3, ...) and its time."""

    sequence: int
    at: float
    body: Body


class Outgoing(Generic[Body]):
    """The direction to the scheduler."""

    def __init__(self, merge: Callable[[Body, Body], bool]) -> None:
        """Create an empty channel. `merge(last, new)` adds a message to the last unsent one; False: it cannot be merged."""
        self._merge = merge
        self._waiting: deque[tuple[float, Body]] = deque()
        self._unacknowledged: deque[Numbered[Body]] = deque()
        self._sent_in_session = 0
        self._last_sequence = 0

    def __len__(self) -> int:
        """Return the number of unacknowledged messages."""
        return len(self._waiting) + len(self._unacknowledged)

    def push(self, body: Body, at: float) -> None:
        """Add a message; the channel may modify it from now on."""
        if not (self._waiting and self._merge(self._waiting[-1][1], body)):
            self._waiting.append((at, body))

    def take(self) -> Numbered[Body] | None:
        """Return the next message to send in this session; None: all were sent."""
        if self._sent_in_session < len(self._unacknowledged):
            message = self._unacknowledged[self._sent_in_session]
        elif self._waiting:
            at, body = self._waiting.popleft()
            self._last_sequence += 1
            message = Numbered(self._last_sequence, at, body)
            self._unacknowledged.append(message)
        else:
            return None
        self._sent_in_session += 1
        return message

    def __iter__(self) -> Iterator[Body]:
        """Yield all unacknowledged messages, sent or not, in order."""
        yield from (message.body for message in self._unacknowledged)
        yield from (body for _, body in self._waiting)

    def acknowledged(self, sequence: int) -> list[Body]:
        """Drop all messages up to `sequence`; return those that were not acknowledged before, in order."""
        arrived: list[Body] = []
        while self._unacknowledged and self._unacknowledged[0].sequence <= sequence:
            arrived.append(self._unacknowledged.popleft().body)
            self._sent_in_session = max(0, self._sent_in_session - 1)
        return arrived

    def new_session(self) -> None:
        """Start a new session, in which all unacknowledged messages are sent again."""
        self._sent_in_session = 0


class Incoming:
    """The direction from the scheduler."""

    def __init__(self, taken: int = 0) -> None:
        """Continue after `taken` commands."""
        self._taken = taken

    @property
    def taken(self) -> int:
        """The number of the last accepted command, acknowledged after every delivery, including duplicates."""
        return self._taken

    def take(self, sequence: int) -> bool:
        """Return whether the command with this number must be carried out, because it is the next one."""
        if sequence != self._taken + 1:
            return False
        self._taken = sequence
        return True


class EpochGuard:
    """Rejects schedulers that a newer one has replaced."""

    def __init__(self) -> None:
        """Start without a known scheduler."""
        self._newest = 0

    @property
    def newest(self) -> int:
        """The highest epoch seen; 0: none."""
        return self._newest

    def admits(self, epoch: int) -> bool:
        """Return whether a scheduler of this epoch may send commands; if so, remember the epoch."""
        if epoch < self._newest:
            return False
        self._newest = epoch
        return True
