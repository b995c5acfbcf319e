"""The streams (connections) of policy processes, and the register of streams that wait for an experiment."""

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
"""Maximum number of unread messages of a process. A process has one up-call at a time, so more are unrequested."""


class SeatLost(Exception):
    """The stream of a policy process has ended."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message of a policy process; see `PolicyHello` for the fields."""

    policy: str
    experiment: StreamId = StreamId("")
    memory: str = ""
    answered: int = 0
    curves: bool = True


class Seat:
    """One stream: the connection of a policy process to the scheduler.

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
        """True if the stream has ended."""
        return self._over.is_set()

    async def send(self, message: pb.DriveResponse) -> None:
        """Sends a message to the process.

        Raises:
            SeatLost: The stream has ended.
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
        """Returns a future of the next message from the process. The future raises `SeatLost` when the stream ends.

        Only one caller may wait at a time.
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
        """Delivers a message received from the process to the caller of `hear`."""
        if self._hearer is not None and not self._hearer.done():
            self._hearer.set_result(message)
        elif len(self._heard) < MOST_UNREAD:
            self._heard.append(message)
        else:
            self.lose(InvalidInput(f"a policy process answers what it is asked; found {MOST_UNREAD} messages more"))

    def hang_up(self, error: HopyardError | None = None) -> None:
        """Ends the stream from the side of the scheduler. `error` is sent to the process; None: no error."""
        if not self.gone:
            self._error = error
            self._over.set()
            if self._hearer is not None and not self._hearer.done():
                self._hearer.set_exception(SeatLost())

    def lose(self, error: HopyardError | None = None) -> None:
        """Marks the stream as ended by the process, and calls the callback of `when_lost`."""
        if not self.gone:
            self.hang_up(error)
            if self._lost is not None:
                self._lost()

    def when_lost(self, then: Callable[[], None]) -> None:
        """Sets a function that is called if the process disconnects. It is not called if the scheduler ends the stream."""
        self._lost = then

    async def over(self) -> None:
        """Waits until the stream ends. Raises the error that `hang_up` was given, if any."""
        await self._over.wait()
        if self._error is not None:
            raise self._error


class Desk:
    """Registers the streams of policy processes, and assigns streams without an experiment to experiments."""

    def __init__(self) -> None:
        self._waiting: list[Seat] = []
        self._open: set[Seat] = set()
        self._came = asyncio.Event()

    def sit(self, seat: Seat) -> None:
        """Registers the stream of a policy process as waiting for an experiment."""
        self._open.add(seat)
        self._waiting.append(seat)
        came, self._came = self._came, asyncio.Event()
        came.set()

    @property
    def full(self) -> bool:
        """True if `MOST_WAITING` streams wait for an experiment, so that no further stream may."""
        return len(self._waiting) >= MOST_WAITING

    def waits(self, policy: str) -> bool:
        """Returns True if the stream of a process with this policy name waits for an experiment."""
        return any(seat.greeting.policy == policy and not seat.gone for seat in self._waiting)

    def leave(self, seat: Seat) -> None:
        """Marks a stream as ended by the process, and removes it from the register."""
        seat.lose()
        self._open.discard(seat)
        if seat in self._waiting:
            self._waiting.remove(seat)

    async def take(self, policy: str, experiment: StreamId) -> Seat:
        """Waits until a stream of a policy is available for an experiment, and removes it from the waiting streams.

        A stream whose process served this experiment before is preferred to one whose process served none.
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
        """Ends all streams with an error that asks the processes to connect again."""
        for seat in list(self._open):
            seat.hang_up(Unavailable("the scheduler stops; dial in again"))
