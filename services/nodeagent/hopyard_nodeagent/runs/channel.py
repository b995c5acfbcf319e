"""One run's channel to the scheduler, without I/O: numbers, acknowledgements, repetition.

Outgoing messages wait unnumbered until the session can take them; until then a new one may be merged into the last.
Once numbered, a message never changes, and it is kept until the scheduler acknowledges it: after a reconnection
everything that is unacknowledged goes out again, in order. Incoming commands are taken exactly once and in order:
what was taken before is a duplicate, what comes after a gap is ignored until the scheduler has filled it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Numbered(Generic[Body]):
    """A message with its place in the channel (1, 2, 3, ...) and the time at which it was made."""

    sequence: int
    at: float
    body: Body


class Outgoing(Generic[Body]):
    """The direction to the scheduler."""

    def __init__(self, merge: Callable[[Body, Body], bool]) -> None:
        """Use `merge(last, new)` to put a new message into the last one that waits; False: it cannot be merged."""
        self._merge = merge
        self._waiting: deque[tuple[float, Body]] = deque()
        self._unacknowledged: deque[Numbered[Body]] = deque()
        self._sent_in_session = 0
        self._last_sequence = 0

    def __len__(self) -> int:
        """Messages that are not acknowledged."""
        return len(self._waiting) + len(self._unacknowledged)

    def push(self, body: Body, at: float) -> None:
        """Add a message; the channel may change it from now on."""
        if not (self._waiting and self._merge(self._waiting[-1][1], body)):
            self._waiting.append((at, body))

    def take(self) -> Numbered[Body] | None:
        """The next message to send in this session; None: everything was sent."""
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
        """Messages that are not acknowledged, sent or not, in order."""
        yield from (message.body for message in self._unacknowledged)
        yield from (body for _, body in self._waiting)

    def acknowledged(self, sequence: int) -> list[Body]:
        """Everything up to `sequence` has arrived for good; returns what was not known to have, in order."""
        arrived: list[Body] = []
        while self._unacknowledged and self._unacknowledged[0].sequence <= sequence:
            arrived.append(self._unacknowledged.popleft().body)
            self._sent_in_session = max(0, self._sent_in_session - 1)
        return arrived

    def new_session(self) -> None:
        """Send again all that is unacknowledged."""
        self._sent_in_session = 0


class Incoming:
    """The direction from the scheduler."""

    def __init__(self, taken: int = 0) -> None:
        """Continue after `taken` commands."""
        self._taken = taken

    @property
    def taken(self) -> int:
        """The last command that was taken, to be acknowledged after every delivery, a duplicate's too."""
        return self._taken

    def take(self, sequence: int) -> bool:
        """Whether the command with this number is to be carried out: it is the next one."""
        if sequence != self._taken + 1:
            return False
        self._taken = sequence
        return True


class EpochGuard:
    """Refuses schedulers that a newer one has replaced."""

    def __init__(self) -> None:
        """No scheduler was seen yet."""
        self._newest = 0

    @property
    def newest(self) -> int:
        """The highest epoch seen; 0: none."""
        return self._newest

    def admits(self, epoch: int) -> bool:
        """Whether a scheduler of this epoch may command; remembers it if so."""
        if epoch < self._newest:
            return False
        self._newest = epoch
        return True
