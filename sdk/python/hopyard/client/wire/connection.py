"""The gRPC channels of a client to the scheduler, to AppStat and to node agents, each opened on first use.

Stubs are imported when they are needed, because read-only commands should be fast.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import grpc.aio

from hopyard._common.private_files import check_own_folder
from hopyard._net.auth import CallerKind, find_token
from hopyard._net.auth.credentials import VARIABLE, locate_token, secrets_of
from hopyard._net.rpc import Channel, channel, fork_guard, retry
from hopyard._net.rpc.address import is_socket, socket_file
from hopyard._net.rpc.channel import Metadata, token_metadata
from hopyard.errors import HopyardError, Unauthenticated, Unavailable
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
        token: The user token that is sent to the scheduler and to AppStat; None: the one that `find_token` finds.
        data: The data directory whose address file contains the address; None: the address was given.
        timeout: Deadline in seconds of each try of a call with one response; streams have no such deadline.
        patience: Seconds for which a call is retried while its service is not reachable.
    """

    live = True
    """Whether a cluster answers the calls. If it is False, nothing changes while the connection is open."""

    def __init__(
        self, server: str, *, token: str | None = None, data: Path | None = None, timeout: float, patience: float
    ) -> None:
        self.server = server
        self.patience = patience
        self._token = token
        self._data = data
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
        """Return the stub of the node agent at `address`. Each call needs the headers that `ticket` returns."""
        from hopyard.v1.node_agent_pb2_grpc import NodeAgentServiceStub

        return NodeAgentServiceStub(self._channel(address, with_token=False))

    async def ticket(self, address: str, method: str, scope: str) -> Metadata:
        """Return the headers of one call to a node agent, with a ticket for it. The user token is never sent to nodes.

        Args:
            address: Address of the node agent.
            method: Name of the method, such as "StreamLogs".
            scope: What the call is about, as in `IssueTicketRequest.object`.

        Raises:
            NotFound: No connected node has the address.
            Unavailable: The scheduler was not reachable.
        """
        from hopyard.v1.resource_manager_pb2 import IssueTicketRequest

        request = IssueTicketRequest(address=address, method=method, object=scope)
        return token_metadata((await self.resources.IssueTicket(request)).ticket)

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
            Unauthenticated: The service does not accept the token. The message names the place of the token.
            Unavailable: `once` still raised it when `patience` seconds were over. The message names the scheduler's address.
            Exception: Any other exception of `once`, immediately.
        """
        try:
            return await retry(once, deadline=self.patience)
        except Unavailable as error:
            raise self.unanswered(error) from error
        except Unauthenticated as error:
            raise Unauthenticated(f"{self.server}: {error}; {self._advice()}") from error

    def _advice(self) -> str:
        """Return what to do if a service does not accept the token."""
        copy = "replace it by a copy of secrets/user.token in the data directory of the cluster"
        if self._token is not None:
            return f"it was given to the client: {copy}"
        try:
            found = locate_token(CallerKind.USER, self.server, self._data)
        except HopyardError as error:
            return str(error)
        if found.file is None:
            return f"it is in the variable {VARIABLE.format('USER')}: {copy}"
        return f"it is in {found.file}: restart the cluster if the folder was replaced, or else {copy}"

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

    def _channel(self, address: str, *, with_token: bool = True) -> grpc.aio.Channel:
        """Return the channel to a service, whose calls send the user token unless `with_token` is False."""
        fork_guard.begin()
        if address not in self._channels:
            token = partial(self._user_token, address) if with_token else None
            self._channels[address] = channel(address, token=token, timeout=self._timeout)
        return self._channels[address]

    def _user_token(self, address: str) -> str:
        if is_socket(address):  # Also for a token that was given to this client: whoever listens there receives it.
            check_own_folder(socket_file(address).parent)
        # AppStat may have another data folder than the scheduler, and other tokens.
        if address != self.server and secrets_of(address) is not None:
            return find_token(CallerKind.USER, address)
        if self._token is not None:
            return self._token
        return find_token(CallerKind.USER, self.server, self._data)
