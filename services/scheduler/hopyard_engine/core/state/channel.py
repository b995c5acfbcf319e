"""The channel of one process of a run: sequence numbers and acknowledgements in both directions, without I/O.

The agent numbers its messages 1, 2, 3, ... The core accepts only the next number, acknowledges numbers that it has seen before, and
ignores numbers after a gap; after a reconnection the sender resends all unacknowledged messages. Commands use the same rules in the
other direction. The numbers are part of the stream's journalled state, so a restarted scheduler neither loses nor repeats a message.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hopyard_engine.core.effects import CommandBody


@dataclass(slots=True)
class RunChannel:
    """The sequence numbers of a channel and its unacknowledged commands. `finished` is set when the process has reported its end."""

    node: str
    finished: bool = False
    received: int = 0
    sent: int = 0
    acknowledged: int = 0
    unacknowledged: dict[int, CommandBody] = field(default_factory=dict)

    def is_next(self, sequence: int) -> bool:
        """Returns whether a message has the next expected sequence number."""
        return sequence == self.received + 1

    def send(self, body: CommandBody) -> int:
        """Assigns the next sequence number to a command, keeps the command until it is acknowledged, and returns the number."""
        self.sent += 1
        self.unacknowledged[self.sent] = body
        return self.sent

    def acknowledge(self, sequence: int) -> None:
        """Drops the commands up to a sequence number, which the agent has accepted."""
        self.acknowledged = max(self.acknowledged, min(sequence, self.sent))
        for number in [n for n in self.unacknowledged if n <= sequence]:
            del self.unacknowledged[number]

    def close(self) -> None:
        """Drops all unacknowledged commands: the process is gone."""
        self.unacknowledged.clear()
