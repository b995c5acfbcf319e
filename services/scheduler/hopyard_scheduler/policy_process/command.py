"""Policy processes that an experiment's `policy.command` starts; they connect to the scheduler's server."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hopyard.policy.vocabulary import StreamId
from hopyard_scheduler.policy_process import die_with_parent
from hopyard_scheduler.policy_process.spawn import Invocation
from hopyard_scheduler.policy_process.streams import Desk, Seat

SERVER_VARIABLE: Final = "HOPYARD_SERVER"
POLICY_VARIABLE: Final = "HOPYARD_POLICY"


class CommandConnection:
    """Starts the command, and finds its stream by a random name that only the process gets.

    Args:
        command: The program and its arguments.
        desk: Registers the streams of processes.
        address: Returns the address of the scheduler, once it listens.
    """

    ready = "dialled in"
    broken = False

    def __init__(self, command: Sequence[str], desk: Desk, address: Callable[[], str]) -> None:
        self._command = tuple(command)
        self._desk = desk
        self._address = address
        self._key = f"started-{secrets.token_hex(8)}"

    @property
    def label(self) -> str:
        """A name of the process for people."""
        return f"the command {' '.join(self._command)}"

    async def begin(self, code: Path) -> Invocation:
        """Returns the invocation of the next process. Its environment has the server and the name to connect with."""
        own = (sys.executable, "-S", die_with_parent.__file__, str(os.getpid()))
        return Invocation((*own, *self._command), {SERVER_VARIABLE: self._address(), POLICY_VARIABLE: self._key})

    def started(self) -> None:
        """Does nothing: the process inherits no sockets."""

    async def seat(self, experiment: StreamId) -> Seat:
        """Waits for the stream of the process."""
        return await self._desk.take(self._key, experiment)

    def give_back(self, seat: Seat) -> None:
        """Returns the stream to the waiting ones."""
        self._desk.sit(seat)
