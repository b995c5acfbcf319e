"""Policy processes that people start and that connect under a policy name."""

from __future__ import annotations

from collections.abc import Callable

from hopyard.policy.vocabulary import StreamId
from hopyard.spec.models import REMOTE
from hopyard_scheduler.policy_process.streams import Desk, Seat


class Dialled:
    """The processes that serve a policy by its name.

    Args:
        name: The name that the processes give when they connect.
        desk: Registers the streams of processes.
        address: Returns the address of the scheduler, once it listens.
    """

    def __init__(self, name: str, desk: Desk, address: Callable[[], str]) -> None:
        self._name = name
        self._desk = desk
        self._address = address

    @property
    def absent(self) -> str:
        """An error text for the case that no process connects in time."""
        return (
            f"no process serves {REMOTE}{self._name}; start one, such as: "
            f"hopyard policy serve module:Class --name {self._name} --server {self._address()}"
        )

    @property
    def last_output(self) -> str:
        """Empty: the output of the processes is elsewhere."""
        return ""

    async def take(self, experiment: StreamId) -> Seat:
        """Waits for a stream of one of the processes."""
        return await self._desk.take(self._name, experiment)

    def give_back(self, seat: Seat) -> None:
        """Returns a stream to the waiting ones after a review."""
        if not seat.gone:
            self._desk.sit(seat)

    async def restart(self) -> None:
        """Does nothing: the stream of a hanging process was closed, and another process may be waiting."""

    async def close(self) -> None:
        """Does nothing: the processes wait for other experiments."""
