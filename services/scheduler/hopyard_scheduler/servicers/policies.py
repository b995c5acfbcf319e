"""The gRPC service PolicyService: the connections of policy processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from hopyard._net.auth import CallerKind, current_principal
from hopyard.errors import Exhausted, InvalidInput, NotFound, PermissionDenied
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import policy_pb2 as pb
from hopyard.v1 import policy_pb2_grpc
from hopyard_scheduler.policy_process.connections import ConnectionRegistry, Greeting, PolicyConnection
from hopyard_scheduler.runtime.runtime import Runtime

if TYPE_CHECKING:
    import grpc.aio


class PolicyServicer(policy_pb2_grpc.PolicyServiceServicer):
    """Implements the gRPC service PolicyService: registers the connections of policy processes, so that experiments can use them.

    Args:
        registry: The register of connections.
        runtime: Checks that the experiment that a process names is unfinished; None: it is not checked.
    """

    def __init__(self, registry: ConnectionRegistry, runtime: Runtime | None = None) -> None:
        self._registry = registry
        self._runtime = runtime

    async def Drive(  # type: ignore[override]  # the stubs only allow generators
        self,
        request_iterator: AsyncIterator[pb.DriveRequest],
        context: grpc.aio.ServicerContext[pb.DriveRequest, pb.DriveResponse],
    ) -> None:
        """Serve the connection of one policy process until the process or the scheduler ends it.

        Raises:
            InvalidInput: The first message is not a hello (the message that names the policy which the process serves), or
            it names no policy.
            Exhausted: Too many policy processes wait for an experiment.
            NotFound: The process names an experiment that has ended or does not exist.
            PermissionDenied: The token of the process is for another policy.
        """
        connection = PolicyConnection(await self._greet(request_iterator), context.write)
        self._registry.add(connection)
        reader = asyncio.create_task(
            _read(connection, request_iterator), name=f"a process of policy {connection.greeting.policy}"
        )
        try:
            await connection.wait_closed()
        finally:
            self._registry.remove(connection)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _greet(self, requests: AsyncIterator[pb.DriveRequest]) -> Greeting:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("message") != "hello":
            raise InvalidInput("a policy's stream begins with hello")
        hello = first.hello
        if not hello.policy:
            raise InvalidInput("hello.policy: is required; it says which policy the process serves")
        principal = current_principal()
        if principal.kind is CallerKind.POLICY and principal.scope != hello.policy:
            raise PermissionDenied("hello.policy: the token is for another name, that in HOPYARD_POLICY of the process")
        if self._registry.full:
            raise Exhausted("too many policy processes wait for an experiment here; end some of them")
        if hello.experiment and self._runtime is not None:
            found = self._runtime.core.streams.get(StreamId(hello.experiment))
            if found is None or found.state.ended:
                raise NotFound(f"experiment {hello.experiment} is over, or was never here: dial in without it")
        return Greeting(hello.policy, StreamId(hello.experiment), hello.memory, hello.answered, not hello.no_curves)


async def _read(connection: PolicyConnection, requests: AsyncIterator[pb.DriveRequest]) -> None:
    try:
        async for request in requests:
            connection.deliver(request)
    finally:
        connection.lose()
