"""The connections of policy processes, and the register of connections that wait for an experiment.

In this module, a stream is the gRPC stream or socket of a policy process. A `PolicyConnection` represents it.
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

MOST_UNREAD_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of the unread messages of a process together."""

REQUEST_BYTES: Final = 20 * 1024 * 1024
"""Maximum size of a request to a server of policy processes: an answer may have 16 MiB in the journal."""


class ConnectionLost(Exception):
    """Raised when the connection of a policy process has ended."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first message of a policy process.

    Attributes:
        policy: The policy name that the process serves.
        experiment: After a broken connection, the id of the stream that the process served; empty: it can serve any
            stream.
        memory: An id of the state that the process still has; empty: it has no state.
        answered: The number of the last up-call that the process answered; 0: none.
        curves: True if the process needs learning curves.
    """

    policy: str
    experiment: StreamId = StreamId("")
    memory: str = ""
    answered: int = 0
    curves: bool = True


class PolicyConnection:
    """The connection of one policy process to the scheduler. Messages are sent with `send` and received with `receive`.

    The server that accepted the connection calls `deliver` and `lose`, and ends the connection when `wait_closed` returns.

    Args:
        greeting: The first message of the process.
        write: Sends a message to the process.
    """

    def __init__(self, greeting: Greeting, write: Callable[[pb.DriveResponse], Awaitable[None]]) -> None:
        self.greeting = greeting
        self._write = write
        self._received: deque[pb.DriveRequest] = deque()
        self._received_bytes = 0
        self._receiver: asyncio.Future[pb.DriveRequest] | None = None
        self._closed = asyncio.Event()
        self._error: HopyardError | None = None
        self._lost: Callable[[], None] | None = None

    @property
    def closed(self) -> bool:
        """True if the connection has ended."""
        return self._closed.is_set()

    async def send(self, message: pb.DriveResponse) -> None:
        """Send a message to the process.

        Raises:
            ConnectionLost: The connection has ended.
        """
        if self.closed:
            raise ConnectionLost
        try:
            await self._write(message)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.lose()
            raise ConnectionLost from error

    def receive(self) -> asyncio.Future[pb.DriveRequest]:
        """Return a future of the next message from the process. It raises `ConnectionLost` when the connection ends.

        It must not be called while an earlier future is pending, because the earlier one would then never complete.
        """
        receiver: asyncio.Future[pb.DriveRequest] = asyncio.get_running_loop().create_future()
        if self._received:
            message = self._received.popleft()
            self._received_bytes -= message.ByteSize()
            receiver.set_result(message)
        elif self.closed:
            receiver.set_exception(ConnectionLost())
        else:
            self._receiver = receiver
        return receiver

    def deliver(self, message: pb.DriveRequest) -> None:
        """Deliver a message received from the process to the caller of `receive`, or queue it for the next call of `receive`.

        If more than `MOST_UNREAD` messages or `MOST_UNREAD_BYTES` would be queued, the connection is ended with an error.
        """
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(message)
            return
        size = message.ByteSize()
        if len(self._received) >= MOST_UNREAD or self._received_bytes + size > MOST_UNREAD_BYTES:
            found = f"{len(self._received)} further messages ({self._received_bytes} bytes)"
            self.lose(InvalidInput(f"a policy process only answers; found {found}"))
            return
        self._received.append(message)
        self._received_bytes += size

    def close(self, error: HopyardError | None = None) -> None:
        """End the connection from the side of the scheduler. No effect if it has ended.

        Args:
            error: The error that the process receives; None: it receives none.
        """
        if not self.closed:
            self._error = error
            self._closed.set()
            if self._receiver is not None and not self._receiver.done():
                self._receiver.set_exception(ConnectionLost())

    def lose(self, error: HopyardError | None = None) -> None:
        """End the connection because of the process, and call the callback of `on_lost`. No effect if it has ended.

        Either the process has disconnected, or it sent messages that are not allowed.

        Args:
            error: What `wait_closed` raises, so that the server sends it to a process that is still connected; None: no
                error.
        """
        if not self.closed:
            self.close(error)
            if self._lost is not None:
                self._lost()

    def on_lost(self, then: Callable[[], None]) -> None:
        """Set the function `then`, which is called if the process ends the connection.

        It is not called if the scheduler ends the connection.
        """
        self._lost = then

    async def wait_closed(self) -> None:
        """Wait until the connection ends. Raise the error that was passed to `close` or `lose`, if any."""
        await self._closed.wait()
        if self._error is not None:
            raise self._error


class ConnectionRegistry:
    """The register of the connections of policy processes. Experiments take connections from it."""

    def __init__(self) -> None:
        self._waiting: list[PolicyConnection] = []
        self._open: set[PolicyConnection] = set()
        self._came = asyncio.Event()

    def add(self, connection: PolicyConnection) -> None:
        """Register a connection, so that an experiment can take it."""
        self._open.add(connection)
        self._waiting.append(connection)
        came, self._came = self._came, asyncio.Event()
        came.set()

    @property
    def full(self) -> bool:
        """True if `MOST_WAITING` connections wait for an experiment, so that no further connection is accepted."""
        return len(self._waiting) >= MOST_WAITING

    def has_waiting(self, policy: str) -> bool:
        """Return True if a process that connected under this policy name waits for an experiment."""
        return any(connection.greeting.policy == policy and not connection.closed for connection in self._waiting)

    def remove(self, connection: PolicyConnection) -> None:
        """Mark a connection as ended by the process, and remove it from the register."""
        connection.lose()
        self._open.discard(connection)
        if connection in self._waiting:
            self._waiting.remove(connection)

    async def take(self, policy: str, stream: StreamId) -> PolicyConnection:
        """Wait until a connection of a policy is available, remove it from those that wait, and return it.

        A process that served the experiment before is preferred. A process that served another experiment is not taken.
        There is no time limit.

        Args:
            policy: The name under which the process connected.
            stream: The stream that the process is to serve; empty: it is only asked whether it accepts a new experiment.
        """
        while True:
            found = [
                connection
                for connection in self._waiting
                if connection.greeting.policy == policy and not connection.closed
            ]
            known = [connection for connection in found if stream and connection.greeting.experiment == stream]
            free = [connection for connection in found if not connection.greeting.experiment]
            if known or free:
                connection = (known or free)[0]
                self._waiting.remove(connection)
                return connection
            await self._came.wait()

    def close(self) -> None:
        """End all connections with an error that asks the processes to connect again."""
        for connection in list(self._open):
            connection.close(Unavailable("the scheduler stops; dial in again"))
