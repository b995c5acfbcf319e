"""The connections of policy processes, and the register of connections that wait for an experiment.

In this module, a stream is the gRPC stream or socket of a policy process. A `Seat` represents it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from hopyard.errors import HopyardError, InvalidInput, Unavailable
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import policy_pb2 as pb

MOST_WAITING: Final = 1_000
"""Maximum number of streams that wait for an experiment."""

MOST_UNREAD: Final = 1_000
"""Maximum number of unread messages of a process. A process gets one up-call at a time, so it has no reason to send more."""


class SeatLost(Exception):
    """Raised when the connection of a policy process has ended."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message of a policy process.

    Attributes:
        policy: The policy name that the process serves.
        experiment: After a broken connection, the stream that the process served; empty: it can serve any.
        memory: An id of the state that the process still has; empty: it has no state.
        answered: The number of the last up-call that the process answered; 0: none.
        curves: True if the process needs learning curves.
    """

    policy: str
    experiment: StreamId = StreamId("")
    memory: str = ""
    answered: int = 0
    curves: bool = True


class Seat:
    """The connection of one policy process to the scheduler. Messages are sent with `send` and received with `hear`.

    The server that accepted the connection calls `take` and `lose`, and ends the connection when `over` returns.

    Args:
        greeting: The first message of the process.
        write: Sends a message to the process.
    """

    def __init__(self, greeting: Greeting, write: Callable[[pb.DriveResponse], Awaitable[None]]) -> None:
        self.greeting = greeting
        self._write = write
        self._heard: deque[pb.DriveRequest] = deque()
        self._hearer: asyncio.Future[pb.DriveRequest] | None = None
        self._over = asyncio.Event()
        self._error: HopyardError | None = None
        self._lost: Callable[[], None] | None = None

    @property
    def gone(self) -> bool:
        """True if the connection has ended."""
        return self._over.is_set()

    async def send(self, message: pb.DriveResponse) -> None:
        """Send a message to the process.

        Raises:
            SeatLost: The connection has ended.
        """
        if self.gone:
            raise SeatLost
        try:
            await self._write(message)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.lose()
            raise SeatLost from error

    def hear(self) -> asyncio.Future[pb.DriveRequest]:
        """Return a future of the next message from the process. Only one caller may wait at a time.

        The future raises `SeatLost` when the connection ends.
        """
        hearer: asyncio.Future[pb.DriveRequest] = asyncio.get_running_loop().create_future()
        if self._heard:
            hearer.set_result(self._heard.popleft())
        elif self.gone:
            hearer.set_exception(SeatLost())
        else:
            self._hearer = hearer
        return hearer

    def take(self, message: pb.DriveRequest) -> None:
        """Deliver a message received from the process to the caller of `hear`, or queue it for the next call of `hear`.

        If `MOST_UNREAD` messages are queued, the connection is ended with an error.
        """
        if self._hearer is not None and not self._hearer.done():
            self._hearer.set_result(message)
        elif len(self._heard) < MOST_UNREAD:
            self._heard.append(message)
        else:
            self.lose(InvalidInput(f"a policy process answers what it is asked; found {MOST_UNREAD} messages more"))

    def hang_up(self, error: HopyardError | None = None) -> None:
        """End the connection from the side of the scheduler. No effect if it has ended.

        Args:
            error: The error that the process receives; None: it receives none.
        """
        if not self.gone:
            self._error = error
            self._over.set()
            if self._hearer is not None and not self._hearer.done():
                self._hearer.set_exception(SeatLost())

    def lose(self, error: HopyardError | None = None) -> None:
        """Mark the connection as ended by the process, and call the callback of `when_lost`. No effect if it has ended.

        Args:
            error: The error that the process receives; None: it receives none.
        """
        if not self.gone:
            self.hang_up(error)
            if self._lost is not None:
                self._lost()

    def when_lost(self, then: Callable[[], None]) -> None:
        """Set the function `then`, which is called if the process ends the connection.

        It is not called if the scheduler ends the connection.
        """
        self._lost = then

    async def over(self) -> None:
        """Wait until the connection ends. Raise the error that was passed to `hang_up` or `lose`, if any."""
        await self._over.wait()
        if self._error is not None:
            raise self._error


class Desk:
    """The register of the connections of policy processes. Experiments take connections from it."""

    def __init__(self) -> None:
        self._waiting: list[Seat] = []
        self._open: set[Seat] = set()
        self._came = asyncio.Event()

    def sit(self, seat: Seat) -> None:
        """Register a connection (`seat`), so that an experiment can take it."""
        self._open.add(seat)
        self._waiting.append(seat)
        came, self._came = self._came, asyncio.Event()
        came.set()

    @property
    def full(self) -> bool:
        """True if `MOST_WAITING` connections wait for an experiment, so that no further connection is accepted."""
        return len(self._waiting) >= MOST_WAITING

    def waits(self, policy: str) -> bool:
        """Return True if a process that connected under this policy name waits for an experiment."""
        return any(seat.greeting.policy == policy and not seat.gone for seat in self._waiting)

    def leave(self, seat: Seat) -> None:
        """Mark a connection as ended by the process, and remove it from the register."""
        seat.lose()
        self._open.discard(seat)
        if seat in self._waiting:
            self._waiting.remove(seat)

    async def take(self, policy: str, experiment: StreamId) -> Seat:
        """Wait until a connection of a policy is available, remove it from those that wait, and return it.

        A process that served the experiment before is preferred. A process that served another experiment is not taken.

        Args:
            policy: The name under which the process connected.
            experiment: The stream that the process is to serve; empty: a review of a new experiment.
        """
        while True:
            found = [seat for seat in self._waiting if seat.greeting.policy == policy and not seat.gone]
            known = [seat for seat in found if experiment and seat.greeting.experiment == experiment]
            free = [seat for seat in found if not seat.greeting.experiment]
            if known or free:
                seat = (known or free)[0]
                self._waiting.remove(seat)
                return seat
            await self._came.wait()

    def close(self) -> None:
        """End all connections with an error that asks the processes to connect again."""
        for seat in list(self._open):
            seat.hang_up(Unavailable("the scheduler stops; dial in again"))
