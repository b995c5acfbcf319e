"""Policy processes that the scheduler starts from an experiment's `policy.command`. They connect to the scheduler's server."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from hopyard._net.auth import CallerKind, Token, TokenAuthenticator, new_token
from hopyard.policy.vocabulary import StreamId
from hopyard_scheduler.policy_process import die_with_parent
from hopyard_scheduler.policy_process.connections import ConnectionRegistry, PolicyConnection
from hopyard_scheduler.policy_process.spawn import Invocation

SERVER_VARIABLE: Final = "HOPYARD_SERVER"
POLICY_VARIABLE: Final = "HOPYARD_POLICY"
TOKEN_VARIABLE: Final = "HOPYARD_POLICY_TOKEN"


class CommandLauncher:
    """Defines how the process of a policy command is started and how its connection is found. Implements `ProcessLauncher`.

    The process connects under a random policy name, with a token that is valid only for this name. It receives both in environment
    variables.

    Args:
        command: The program and its arguments.
        registry: The register of the connections of policy processes.
        address: Returns the address of the scheduler. Called only after the scheduler listens.
        tokens: The tokens that the scheduler accepts.
    """

    ready = "dialled in"
    broken = False

    def __init__(
        self,
        command: Sequence[str],
        registry: ConnectionRegistry,
        address: Callable[[], str],
        tokens: TokenAuthenticator,
    ) -> None:
        self._command = tuple(command)
        self._registry = registry
        self._address = address
        self._tokens = tokens
        self._token: Token | None = None
        self._key = f"started-{secrets.token_hex(8)}"

    @property
    def label(self) -> str:
        """A name of the process for messages to people."""
        return f"the command {' '.join(self._command)}"

    async def begin(self, code: Path) -> Invocation:
        """Return how to start the next process. Its environment has the scheduler's address, a token and the name to connect under.

        The token of the process before is not accepted any more.

        Args:
            code: The folder of the experiment's code. Not used.
        """
        self.close()
        self._token = new_token(CallerKind.POLICY)
        self._tokens.add(self._token, self._key)
        variables = {
            SERVER_VARIABLE: self._address(),
            TOKEN_VARIABLE: self._token.text,
            POLICY_VARIABLE: self._key,
        }
        own = (sys.executable, "-S", die_with_parent.__file__, str(os.getpid()))
        return Invocation((*own, *self._command), variables)

    def started(self) -> None:
        """Do nothing: the process inherits no sockets."""

    def close(self) -> None:
        """Stop accepting the token of the last process."""
        if self._token is not None:
            self._tokens.remove(self._token)
            self._token = None

    async def accept(self, stream: StreamId) -> PolicyConnection:
        """Wait for the connection of the process and return it. There is no time limit: the caller cancels the wait.

        Args:
            stream: The stream that the process is to serve; empty: it is only asked whether it accepts a new experiment.
        """
        return await self._registry.take(self._key, stream)

    def give_back(self, connection: PolicyConnection) -> None:
        """Make a connection that is no longer in use available to the next call of `accept`."""
        self._registry.add(connection)
