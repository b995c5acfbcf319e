"""Policies that do not come with Hopyard: the process of each, and the socket that connects it to the scheduler."""

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
from hopyard.v1 import policy_pb2 as pb
from hopyard_scheduler.policy_process.spawn import Invocation
from hopyard_scheduler.policy_process.streams import Greeting, Seat

_LOG = logging.getLogger(__name__)

_MODULE: Final = "hopyard._runtime.policy_process"


class OwnPolicyConnection:
    """How the process of a policy is started, and comes to its stream: over a socket that it inherits.

    Args:
        policy: The policy's name or module:Class.
    """

    ready = "started"

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._seat: asyncio.Future[Seat] | None = None
        self._taken = False
        self._inherited: socket.socket | None = None

    @property
    def label(self) -> str:
        """What is started, for people."""
        return f"the process of policy {self._policy}"

    @property
    def broken(self) -> bool:
        """Whether the process gets no other stream: it has one."""
        return self._taken

    async def begin(self, code: Path) -> Invocation:
        """Before a process is started."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        self._inherited, self._taken = theirs, False
        found = self._seat = loop.create_future()
        try:
            await loop.create_unix_connection(lambda: _Line(found), sock=ours)
        except BaseException:
            ours.close()
            raise
        # `-P`: the folder in which it runs does not hide what is installed.
        python = (sys.executable, "-P", "-m", _MODULE)
        # Where the scheduler runs comes before the experiment's code: what is mended there holds for experiments that are there.
        folders = (*map(os.path.abspath, sys.path), str(code))
        return Invocation(
            (*python, self._policy, str(theirs.fileno()), str(os.getpid()), *folders), sockets=(theirs.fileno(),)
        )

    def started(self) -> None:
        """The process has its end of the socket."""
        if self._inherited is not None:
            self._inherited.close()
            self._inherited = None

    async def seat(self, experiment: str) -> Seat:
        """The stream of the process. Waits for it."""
        assert self._seat is not None
        found = await asyncio.shield(self._seat)
        self._taken = True
        return found

    def give_back(self, seat: Seat) -> None:
        """The stream waits again."""
        self._taken = False


class _Line(asyncio.Protocol):
    """The scheduler's end of a socket.

    Args:
        greeted: Gets the stream, once the process has greeted.
    """

    def __init__(self, greeted: asyncio.Future[Seat]) -> None:
        self._greeted = greeted
        self._frames = Frames()
        self._transport: asyncio.WriteTransport | None = None
        self._seat: Seat | None = None
        self._closing: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is connected."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """The process said something."""
        try:
            for message in self._frames.feed(data):
                self._take(pb.DriveRequest.FromString(message))
        except (DecodeError, HopyardError) as error:
            _LOG.warning("a policy process is hung up on: %s", error)
            assert self._transport is not None
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process has ended, or was hung up on."""
        if self._seat is not None:
            self._seat.lose()

    def _take(self, message: pb.DriveRequest) -> None:
        if self._seat is not None:
            self._seat.take(message)
            return
        self._seat = Seat(Greeting(message.hello.policy), self._send)
        self._closing = asyncio.create_task(self._close_after(self._seat), name="end of a policy's stream")
        if not self._greeted.done():
            self._greeted.set_result(self._seat)

    async def _send(self, message: pb.DriveResponse) -> None:
        # It does not wait until the process has read: that one may hang, and what it has yet to read is bounded.
        assert self._transport is not None
        self._transport.write(framed(message.SerializeToString()))

    async def _close_after(self, seat: Seat) -> None:
        with suppress(HopyardError):
            await seat.over()
        assert self._transport is not None
        self._transport.close()
