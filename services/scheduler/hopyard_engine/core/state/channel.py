"""The message channel of one process of a run: sequence numbers and acknowledgements in both directions, without I/O.

The agent numbers its messages 1, 2, 3, ... The core accepts only the next number, acknowledges numbers that it has already received
once more, and ignores numbers after a gap. After a reconnection the sender resends all unacknowledged messages. Commands from the core
to the agent use the same rules in the other direction. The numbers are part of the stream's journalled state, so a restarted scheduler
neither loses nor repeats a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hopyard_engine.core.effects import CommandBody


@dataclass(slots=True)
class RunChannel:
    """Represents the core's side of one channel: the sequence numbers of both directions and the unacknowledged commands.

    Attributes:
        node: Name of the node whose agent is the other side.
        finished: Whether the process has reported its end.
        received: Sequence number of the last accepted message from the agent; 0: none yet.
        sent: Sequence number of the last command to the agent; 0: none yet.
        acknowledged: Highest sequence number of a command that the agent has acknowledged; 0: none yet.
        unacknowledged: Commands that the agent has not acknowledged, by sequence number.
    """

    node: str
    finished: bool = False
    received: int = 0
    sent: int = 0
    acknowledged: int = 0
    unacknowledged: dict[int, CommandBody] = field(default_factory=dict)

    def is_next(self, sequence: int) -> bool:
        """Return whether `sequence` is the number of the next expected message from the agent."""
        return sequence == self.received + 1

    def send(self, body: CommandBody) -> int:
        """Assign the next sequence number to a command, store the command until it is acknowledged, and return the number."""
        self.sent += 1
        self.unacknowledged[self.sent] = body
        return self.sent

    def acknowledge(self, sequence: int) -> None:
        """Record that the agent has accepted all commands up to and including number `sequence`, and drop them."""
        self.acknowledged = max(self.acknowledged, min(sequence, self.sent))
        for number in [n for n in self.unacknowledged if n <= sequence]:
            del self.unacknowledged[number]

    def close(self) -> None:
        """Drop all unacknowledged commands, because the process no longer exists."""
        self.unacknowledged.clear()
