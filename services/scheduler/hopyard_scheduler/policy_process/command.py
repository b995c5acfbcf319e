"""The commands of experiments that run as policy processes: they dial in."""

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
    """How a command is started, and comes to its stream: under a name that only it knows.

    Args:
        command: The program and its arguments.
        desk: Where it dials in.
        address: The scheduler's own address, once it listens.
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
        """What is started, for people."""
        return f"the command {' '.join(self._command)}"

    async def begin(self, code: Path) -> Invocation:
        """Before a process is started."""
        own = (sys.executable, "-S", die_with_parent.__file__, str(os.getpid()))
        return Invocation((*own, *self._command), {SERVER_VARIABLE: self._address(), POLICY_VARIABLE: self._key})

    def started(self) -> None:
        """It inherits nothing."""

    async def seat(self, experiment: str) -> Seat:
        """A stream of the process. Waits for it."""
        return await self._desk.take(self._key, StreamId(experiment))

    def give_back(self, seat: Seat) -> None:
        """The stream waits again."""
        self._desk.sit(seat)
