"""One run process's channel: sequence numbers and acknowledgements in both directions, without I/O.

The agent numbers its messages 1, 2, 3, ...; the core takes exactly the next one, acknowledges what it has seen before, and ignores
what comes after a gap until the gap is filled (the sender sends all that is unacknowledged again after a reconnection). Commands
go the same way in the other direction. The numbers are part of the experiment's state and so of its journal: a restarted
scheduler goes on where the last one stopped, and nothing is taken twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hopyard_engine.core.effects import CommandBody


@dataclass(slots=True)
class RunChannel:
    """Numbers of one channel and its unacknowledged commands. `finished` once the process has said that it ended."""

    node: str
    finished: bool = False
    received: int = 0
    sent: int = 0
    acknowledged: int = 0
    unacknowledged: dict[int, CommandBody] = field(default_factory=dict)

    def is_next(self, sequence: int) -> bool:
        """Whether a message is the one to take now."""
        return sequence == self.received + 1

    def send(self, body: CommandBody) -> int:
        """Numbers a command and keeps it until it is acknowledged."""
        self.sent += 1
        self.unacknowledged[self.sent] = body
        return self.sent

    def acknowledge(self, sequence: int) -> None:
        """The agent has taken over everything up to a sequence."""
        self.acknowledged = max(self.acknowledged, min(sequence, self.sent))
        for number in [n for n in self.unacknowledged if n <= sequence]:
            del self.unacknowledged[number]

    def close(self) -> None:
        """No command matters any more."""
        self.unacknowledged.clear()
