"""Policy processes that people start and that connect to the scheduler under a policy name."""

from __future__ import annotations

from collections.abc import Callable

from hopyard.policy.vocabulary import StreamId
from hopyard.spec.models import REMOTE
from hopyard_scheduler.policy_process.connections import ConnectionRegistry, PolicyConnection


class InboundPolicy:
    """The processes that serve a policy under a name. Implements `ProcessSource` without starting processes.

    Args:
        name: The policy name that the processes give when they connect.
        registry: The register of the connections of policy processes.
        address: Returns the address Address of the scheduler. Called only after the scheduler listens.
    """

    def __init__(self, name: str, registry: ConnectionRegistry, address: Callable[[], str]) -> None:
        self._name = name
        self._registry = registry
        self._address = address

    @property
    def absent(self) -> str:
        """An error text that states that no process serves the policy, and how to start one."""
        return (
            f"no process serves {REMOTE}{self._name}; start one, such as: "
            f"hopyard policy serve module:Class --name {self._name} --server {self._address()}"
        )

    @property
    def last_output(self) -> str:
        """Empty: the output of the processes is elsewhere."""
        return ""

    async def take(self, stream: StreamId) -> PolicyConnection:
        """Wait without a time limit until a process of this policy is available, and return its connection.

        Args:
            stream: The stream that the process is to serve; empty: it is only asked whether it accepts a new experiment.
        """
        return await self._registry.take(self._name, stream)

    def give_back(self, connection: PolicyConnection) -> None:
        """Make a connection available to other experiments. No effect if it has ended.

        It is called after the process was only asked whether it accepts a new experiment.
        """
        if not connection.closed:
            self._registry.add(connection)

    async def restart(self) -> None:
        """Do nothing: the connection of a hanging process was closed, and another process may be available."""

    async def close(self) -> None:
        """Do nothing: the processes stay available to other experiments."""
