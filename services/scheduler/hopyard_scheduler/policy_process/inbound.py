"""Policy processes that people start, and that dial in under a name."""

from __future__ import annotations

from collections.abc import Callable

from hopyard.policy.vocabulary import StreamId
from hopyard.spec.models import REMOTE
from hopyard_scheduler.policy_process.streams import Desk, Seat


class Dialled:
    """The processes that serve a policy by its name.

    Args:
        name: As the processes say it.
        desk: Where they dial in.
        address: The scheduler's own address, once it listens.
    """

    def __init__(self, name: str, desk: Desk, address: Callable[[], str]) -> None:
        self._name = name
        self._desk = desk
        self._address = address

    @property
    def absent(self) -> str:
        """What to say when nobody comes."""
        return (
            f"no process serves {REMOTE}{self._name}; start one, such as: "
            f"hopyard policy serve module:Class --name {self._name} --server {self._address()}"
        )

    async def take(self, experiment: StreamId) -> Seat:
        """A stream of one of them. Waits for it."""
        return await self._desk.take(self._name, experiment)

    def give_back(self, seat: Seat) -> None:
        """The stream was not for an experiment, and waits again."""
        if not seat.gone:
            self._desk.sit(seat)

    async def restart(self) -> None:
        """Nothing: whoever hangs was hung up on, and another one may be there."""

    async def close(self) -> None:
        """Nothing: they go on waiting for other experiments."""
