"""The streams of policy processes: who dialled in, and waits for an experiment or serves one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from hopyard.errors import HopyardError, Unavailable
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import policy_pb2 as pb

MOST_WAITING: Final = 1_000
"""Streams that may wait for an experiment at a time."""


class SeatLost(Exception):
    """The stream has ended."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who dials in; see `PolicyHello`."""

    policy: str
    experiment: StreamId = StreamId("")
    memory: str = ""
    answered: int = 0
    curves: bool = True


class Seat:
    """One stream of a policy process.

    Args:
        greeting: What it said first.
        write: Sends a message.
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
        """Whether the stream has ended."""
        return self._over.is_set()

    async def send(self, message: pb.DriveResponse) -> None:
        """Sends a message.

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
        """The next message, or `SeatLost`: the stream has ended. For one at a time."""
        hearer: asyncio.Future[pb.DriveRequest] = asyncio.get_running_loop().create_future()
        if self._heard:
            hearer.set_result(self._heard.popleft())
        elif self.gone:
            hearer.set_exception(SeatLost())
        else:
            self._hearer = hearer
        return hearer

    def take(self, message: pb.DriveRequest) -> None:
        """A message came."""
        if self._hearer is not None and not self._hearer.done():
            self._hearer.set_result(message)
        else:
            self._heard.append(message)

    def hang_up(self, error: HopyardError | None = None) -> None:
        """Ends the stream: with the error, or in peace."""
        if not self.gone:
            self._error = error
            self._over.set()
            if self._hearer is not None and not self._hearer.done():
                self._hearer.set_exception(SeatLost())

    def lose(self) -> None:
        """The process has ended the stream."""
        if not self.gone:
            self.hang_up()
            if self._lost is not None:
                self._lost()

    def when_lost(self, then: Callable[[], None]) -> None:
        """Calls it once the process has gone away by itself, not when it was hung up on."""
        self._lost = then

    async def over(self) -> None:
        """Waits until the stream is to end; raises the error with which it does."""
        await self._over.wait()
        if self._error is not None:
            raise self._error


class Desk:
    """The seats that wait for an experiment."""

    def __init__(self) -> None:
        self._waiting: list[Seat] = []
        self._open: set[Seat] = set()
        self._came = asyncio.Event()

    def sit(self, seat: Seat) -> None:
        """Somebody dialled in, or has nothing to do any more."""
        self._open.add(seat)
        self._waiting.append(seat)
        came, self._came = self._came, asyncio.Event()
        came.set()

    @property
    def full(self) -> bool:
        """Whether nobody else may wait."""
        return len(self._waiting) >= MOST_WAITING

    def waits(self, policy: str) -> bool:
        """Whether a process of a policy waits for an experiment."""
        return any(seat.greeting.policy == policy and not seat.gone for seat in self._waiting)

    def leave(self, seat: Seat) -> None:
        """A stream has ended."""
        seat.lose()
        self._open.discard(seat)
        if seat in self._waiting:
            self._waiting.remove(seat)

    async def take(self, policy: str, experiment: StreamId) -> Seat:
        """A process of a policy for an experiment: one that has served it before, else one that serves any. Waits for it."""
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
        """The scheduler stops: everybody is to dial in again."""
        for seat in list(self._open):
            seat.hang_up(Unavailable("the scheduler stops; dial in again"))
