"""The gRPC channels of a client to the scheduler, to AppStat and to node agents, each opened on first use.

Stubs are imported when they are needed, because read-only commands should be fast.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import grpc.aio

from hopyard._net.rpc import Channel, channel, fork_guard, retry
from hopyard.errors import Unavailable
from hopyard.v1 import experiment_pb2
from hopyard.v1.experiment_pb2_grpc import ExperimentServiceStub

if TYPE_CHECKING:
    # The asynchronous classes of the stubs exist only in the type stubs.
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub
    from hopyard.v1.data_pb2_grpc import DataServiceAsyncStub
    from hopyard.v1.experiment_pb2_grpc import ExperimentServiceAsyncStub
    from hopyard.v1.job_manager_pb2_grpc import JobManagerServiceAsyncStub
    from hopyard.v1.node_agent_pb2_grpc import NodeAgentServiceAsyncStub
    from hopyard.v1.resource_manager_pb2_grpc import ResourceManagerServiceAsyncStub

T = TypeVar("T")


class Connection:
    """The gRPC channels of one client to the services of a cluster, with deadlines and retries for its calls.

    Args:
        server: Address of the scheduler.
        timeout: Deadline in seconds of each try of a call with one response; streams have no such deadline.
        patience: Seconds for which a call is retried while its service is not reachable.
    """

    live = True
    """Whether a cluster answers the calls. If it is False, nothing changes while the connection is open."""

    def __init__(self, server: str, *, timeout: float, patience: float) -> None:
        self.server = server
        self.patience = patience
        self._timeout = timeout
        self._channels: dict[str, Channel] = {}
        self._appstat: str | None = None

    @property
    def experiments(self) -> ExperimentServiceAsyncStub:
        """The stub of the scheduler's ExperimentService."""
        return ExperimentServiceStub(self._channel(self.server))

    @property
    def jobs(self) -> JobManagerServiceAsyncStub:
        """The stub of the scheduler's JobManagerService."""
        from hopyard.v1.job_manager_pb2_grpc import JobManagerServiceStub

        return JobManagerServiceStub(self._channel(self.server))

    @property
    def resources(self) -> ResourceManagerServiceAsyncStub:
        """The stub of the scheduler's ResourceManagerService."""
        from hopyard.v1.resource_manager_pb2_grpc import ResourceManagerServiceStub

        return ResourceManagerServiceStub(self._channel(self.server))

    @property
    def data(self) -> DataServiceAsyncStub:
        """The stub of the scheduler's DataService, the data set catalog."""
        from hopyard.v1.data_pb2_grpc import DataServiceStub

        return DataServiceStub(self._channel(self.server))

    def node(self, address: str) -> NodeAgentServiceAsyncStub:
        """Return the stub of the node agent at `address`."""
        from hopyard.v1.node_agent_pb2_grpc import NodeAgentServiceStub

        return NodeAgentServiceStub(self._channel(address))

    async def appstat(self) -> AppStatServiceAsyncStub:
        """Return the stub of AppStat. Its address is queried from the scheduler once and then cached."""
        from hopyard.v1.appstat_pb2_grpc import AppStatServiceStub

        if self._appstat is None:
            stub = self.experiments
            answer = await self.call(lambda: stub.GetCluster(experiment_pb2.GetClusterRequest()))
            self._appstat = answer.appstat_address
        return AppStatServiceStub(self._channel(self._appstat))

    async def with_appstat(self, ask: Callable[[AppStatServiceAsyncStub], Awaitable[T]]) -> T:
        """Call `ask` with the stub of AppStat and return its result. Retry it while AppStat is not reachable.

        Each retry queries the address of AppStat again, because it may have moved. `ask` must be idempotent.

        Raises:
            Unavailable: AppStat or the scheduler was not reachable for longer than `patience`.
        """

        async def once() -> T:
            try:
                return await ask(await self.appstat())
            except Unavailable:
                self._appstat = None
                raise

        return await self.call(once)

    async def call(self, once: Callable[[], Awaitable[T]]) -> T:
        """Call `once` and return its result. Call it again, with backoff, when it raises `Unavailable`. It must be idempotent.

        Raises:
            Unavailable: `once` still raised it when `patience` seconds were over. The message names the scheduler's address.
            Exception: Any other exception of `once`, immediately.
        """
        try:
            return await retry(once, deadline=self.patience)
        except Unavailable as error:
            raise self.unanswered(error) from error

    def unanswered(self, error: Unavailable) -> Unavailable:
        """Return the error to raise when a service was not reachable for `patience` seconds: `error` with the scheduler's address.

        The address is the beginning of the message. If `error` has this beginning already, it is not repeated.
        """
        beginning = f"no answer from the cluster at {self.server}: "
        return Unavailable(beginning + str(error).removeprefix(beginning))

    async def close(self) -> None:
        """Close all channels. Safe to call twice."""
        channels, self._channels = self._channels, {}
        for one in channels.values():
            await one.close()

    def _channel(self, address: str) -> grpc.aio.Channel:
        fork_guard.begin()
        if address not in self._channels:
            self._channels[address] = channel(address, timeout=self._timeout)
        return self._channels[address]
