"""Processes of Python policies that are not built in, and the socket pairs that connect them to the scheduler."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from hopyard._runtime.policy_process.frames import Frames, framed
from hopyard.errors import HopyardError
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import policy_pb2 as pb
from hopyard_scheduler.policy_process.connections import Greeting, PolicyConnection
from hopyard_scheduler.policy_process.spawn import Invocation

_LOG = logging.getLogger(__name__)

_MODULE: Final = "hopyard._runtime.policy_process"


class OwnPolicyLauncher:
    """Defines how the process of a Python policy is started and how its connection is found. Implements `ProcessLauncher`.

    The process inherits one end of a socket pair.

    Args:
        policy: The plugin name of the policy, or `module:Class`.
    """

    ready = "started"

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._connection: asyncio.Future[PolicyConnection] | None = None
        self._taken = False
        self._inherited: socket.socket | None = None

    @property
    def label(self) -> str:
        """A name of the process for messages to people."""
        return f"the process of policy {self._policy}"

    @property
    def broken(self) -> bool:
        """True if the connection of the process is in use. A process has only one, so a second `accept` needs a new process."""
        return self._taken

    async def begin(self, code: Path) -> Invocation:
        """Create the socket pair for the next process, and return how to start the process.

        Args:
            code: The folder of the experiment's code, which is added to the search path of the process.
        """
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        self._inherited, self._taken = theirs, False
        found = self._connection = loop.create_future()
        try:
            await loop.create_unix_connection(lambda: _Line(found), sock=ours)
        except BaseException:
            ours.close()
            raise
        # `-P`: modules in the working folder do not hide installed ones.
        python = (sys.executable, "-P", "-m", _MODULE)
        # The scheduler's search path precedes the experiment's code, so that a corrected installation also applies to
        # existing experiments.
        folders = (*map(os.path.abspath, sys.path), str(code))
        return Invocation(
            (*python, self._policy, str(theirs.fileno()), str(os.getpid()), *folders), sockets=(theirs.fileno(),)
        )

    def close(self) -> None:
        """Do nothing: the process was given nothing that outlives it."""

    def started(self) -> None:
        """Close the scheduler's copy of the socket that the process has inherited."""
        if self._inherited is not None:
            self._inherited.close()
            self._inherited = None

    async def accept(self, stream: StreamId) -> PolicyConnection:
        """Wait for the first message of the process and return its connection. There is no time limit: the caller cancels the wait.

        Args:
            stream: Not used: the process serves only one experiment.
        """
        assert self._connection is not None
        found = await asyncio.shield(self._connection)
        self._taken = True
        return found

    def give_back(self, connection: PolicyConnection) -> None:
        """Make the connection available to the next call of `accept`."""
        self._taken = False


class _Line(asyncio.Protocol):
    """The asyncio protocol on the scheduler's end of the socket pair.

    Args:
        greeted: Receives the connection after the first message of the process.
    """

    def __init__(self, greeted: asyncio.Future[PolicyConnection]) -> None:
        self._greeted = greeted
        self._frames = Frames()
        self._transport: asyncio.WriteTransport | None = None
        self._connection: PolicyConnection | None = None
        self._closing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Add received bytes to those before, and deliver the messages that are complete then to the connection.

        An invalid message aborts the connection.
        """
        try:
            for message in self._frames.feed(data):
                self._take(pb.DriveRequest.FromString(message))
        except (DecodeError, HopyardError) as error:
            _LOG.warning("closed the connection to a policy process: %s", error)
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Mark the connection as lost: the process has ended, or the connection was aborted. `exc` is not used."""
        if self._connection is not None:
            self._connection.lose()

    def _take(self, message: pb.DriveRequest) -> None:
        if self._connection is not None:
            self._connection.deliver(message)
            return
        self._connection = PolicyConnection(Greeting(message.hello.policy), self._send)
        self._closing = asyncio.create_task(self._close_after(self._connection), name="end of a policy's stream")
        if not self._greeted.done():
            self._greeted.set_result(self._connection)

    async def _send(self, message: pb.DriveResponse) -> None:
        # It does not wait until the process has read: the process may hang, and the unread data are bounded.
        assert self._transport is not None
        self._transport.write(framed(message.SerializeToString()))

    async def _close_after(self, connection: PolicyConnection) -> None:
        with suppress(HopyardError):
            await connection.wait_closed()
        assert self._transport is not None
        self._transport.close()
