"""Policy processes that the scheduler starts from an experiment's `policy.command`. They connect to the scheduler's server."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hopyard.policy.vocabulary import StreamId
from hopyard_scheduler.policy_process import die_with_parent
from hopyard_scheduler.policy_process.connections import ConnectionRegistry, PolicyConnection
from hopyard_scheduler.policy_process.spawn import Invocation

SERVER_VARIABLE: Final = "HOPYARD_SERVER"
POLICY_VARIABLE: Final = "HOPYARD_POLICY"


class CommandLauncher:
    """Defines how the process of a policy command is started and how its connection is found. Implements `ProcessLauncher`.

    The process connects under a random policy name that only it receives, in an environment variable.

    Args:
        command: The program and its arguments.
        registry: The register of the connections of policy processes.
        address: Returns the address Address of the scheduler. Called only after the scheduler listens.
    """

    ready = "dialled in"
    broken = False

    def __init__(self, command: Sequence[str], registry: ConnectionRegistry, address: Callable[[], str]) -> None:
        self._command = tuple(command)
        self._registry = registry
        self._address = address
        self._key = f"started-{secrets.token_hex(8)}"

    @property
    def label(self) -> str:
        """A name of the process for messages to people."""
        return f"the command {' '.join(self._command)}"

    async def begin(self, code: Path) -> Invocation:
        """Return how to start the next process. Its environment has the scheduler's address and the name to connect under.

        Args:
            code: The folder of the experiment's code. Not used.
        """
        own = (sys.executable, "-S", die_with_parent.__file__, str(os.getpid()))
        return Invocation((*own, *self._command), {SERVER_VARIABLE: self._address(), POLICY_VARIABLE: self._key})

    def started(self) -> None:
        """Do nothing: the process inherits no sockets."""

    async def accept(self, stream: StreamId) -> PolicyConnection:
        """Wait for the connection of the process and return it. There is no time limit: the caller cancels the wait.

        Args:
            stream: The stream that the process is to serve; empty: it is only asked whether it accepts a new experiment.
        """
        return await self._registry.take(self._key, stream)

    def give_back(self, connection: PolicyConnection) -> None:
        """Make a connection that is no longer in use available to the next call of `accept`."""
        self._registry.add(connection)
