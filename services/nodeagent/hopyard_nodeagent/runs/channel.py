"""The channel of a run between the agent and the scheduler, without I/O: sequence numbers, acknowledgements, repetition.

A message to the scheduler gets its sequence number when it is first sent. Until then, a newer message may be merged into it. A numbered
message never changes, and is kept until the scheduler acknowledges it. In a new session, all unacknowledged messages are sent again, in
order.

Commands from the scheduler are accepted exactly once and in order: commands with earlier numbers are duplicates, and commands after a
gap are ignored until the scheduler has sent the missing ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Numbered(Generic[Body]):
    """A message of a run to the scheduler with its number in the channel.

    Attributes:
        sequence: The sequence number: 1, 2, 3, ...
        at: Time on this node at which the message was added, in seconds since the Unix epoch.
        body: The message.
    """

    sequence: int
    at: float
    body: Body


class Outgoing(Generic[Body]):
    """The part of a run's channel that sends messages to the scheduler.

    Args:
        merge: Called as merge(last, new) with the last message without a number and a new one. It adds the new message to the last
            one and returns True, or returns False if they must stay separate.
    """

    def __init__(self, merge: Callable[[Body, Body], bool]) -> None:
        self._merge = merge
        self._waiting: deque[tuple[float, Body]] = deque()
        self._unacknowledged: deque[Numbered[Body]] = deque()
        self._sent_in_session = 0
        self._last_sequence = 0

    def __len__(self) -> int:
        """Return the number of messages that are not acknowledged, sent or not."""
        return len(self._waiting) + len(self._unacknowledged)

    def push(self, body: Body, at: float) -> None:
        """Add a message that occurred at the time `at` (seconds since the Unix epoch). The channel may modify `body` from now on."""
        if not (self._waiting and self._merge(self._waiting[-1][1], body)):
            self._waiting.append((at, body))

    def take(self) -> Numbered[Body] | None:
        """Return the next message to send in the current session, with its number; None: all have been sent."""
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
        """Yield all messages that are not acknowledged, sent or not, in order."""
        yield from (message.body for message in self._unacknowledged)
        yield from (body for _, body in self._waiting)

    def acknowledged(self, sequence: int) -> list[Body]:
        """Drop all messages with numbers up to and including `sequence`, and return them in order; empty: all were dropped before."""
        arrived: list[Body] = []
        while self._unacknowledged and self._unacknowledged[0].sequence <= sequence:
            arrived.append(self._unacknowledged.popleft().body)
            self._sent_in_session = max(0, self._sent_in_session - 1)
        return arrived

    def new_session(self) -> None:
        """Start a new session, in which all unacknowledged messages are sent again."""
        self._sent_in_session = 0


class Incoming:
    """The part of a run's channel that receives commands from the scheduler.

    Args:
        taken: Number of the last command that was accepted; 0: none. Commands are numbered from 1.
    """

    def __init__(self, taken: int = 0) -> None:
        self._taken = taken

    @property
    def taken(self) -> int:
        """The number of the last accepted command; 0: none.

        Send it as the acknowledgement whenever a command has arrived, even if `take` returned False.
        """
        return self._taken

    def take(self, sequence: int) -> bool:
        """Return whether the command with this number must be executed, because it is the next one; if so, count it as accepted."""
        if sequence != self._taken + 1:
            return False
        self._taken = sequence
        return True


class EpochGuard:
    """Rejects messages of schedulers that have been replaced by a newer one, by the scheduler's epoch.

    A new instance has seen no epoch and accepts any.
    """

    def __init__(self) -> None:
        self._newest = 0

    @property
    def newest(self) -> int:
        """The highest epoch seen so far; 0: none."""
        return self._newest

    def admits(self, epoch: int) -> bool:
        """Return whether a scheduler of this epoch may send commands: no newer one is known. If so, remember the epoch."""
        if epoch < self._newest:
            return False
        self._newest = epoch
        return True
