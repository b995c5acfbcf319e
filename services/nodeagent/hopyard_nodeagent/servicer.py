"""The gRPC servicer of NodeAgentService: the agent's service for clients and other agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc.aio

from hopyard._net.auth.tickets import require_scope
from hopyard._net.rpc.values import run_key_from_proto
from hopyard.errors import NotFound
from hopyard.v1 import node_agent_pb2 as wire
from hopyard.v1 import node_agent_pb2_grpc
from hopyard_nodeagent.paths import AgentFolders
from hopyard_nodeagent.runs.logs import log_reader
from hopyard_nodeagent.runs.registry import Runs
from hopyard_nodeagent.snapshots import peers
from hopyard_nodeagent.snapshots.bulk_transfer import BulkSender
from hopyard_nodeagent.snapshots.disk import Snapshots

SERVICE: Final = "hopyard.v1.NodeAgentService"


class NodeAgentServicer(node_agent_pb2_grpc.NodeAgentServiceServicer):
    """Implements the RPCs of NodeAgentService: status, logs, snapshots and the meeting places of gangs.

    Args:
        runs: The runs of the node.
        snapshots: The snapshots on the node.
        folders: The data folder, which contains the logs.
        outlet: Sends contents of snapshots over plain TCP.
        status: Returns the response to GetStatus.
        stopping: Returns whether the agent is stopping; then streams of logs end.
    """

    def __init__(
        self,
        runs: Runs,
        snapshots: Snapshots,
        folders: AgentFolders,
        outlet: BulkSender,
        *,
        status: Callable[[], Awaitable[wire.GetStatusResponse]],
        stopping: Callable[[], bool],
    ) -> None:
        self._runs = runs
        self._snapshots = snapshots
        self._folders = folders
        self._outlet = outlet
        self._status = status
        self._stopping = stopping

    async def GetStatus(  # noqa: D102
        self, request: wire.GetStatusRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.GetStatusResponse:
        require_scope("")
        return await self._status()

    async def StreamLogs(  # noqa: D102
        self, request: wire.StreamLogsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[wire.StreamLogsResponse]:
        require_scope(f"{request.experiment}/{request.job}")

        def live() -> bool:
            return self._runs.live(request.experiment, request.job, request.rank) and not self._stopping()

        path = self._folders.job_log(request.experiment, request.job, request.rank)
        if not path.is_file() and not live():
            rank = f" of rank {request.rank}" if request.rank else ""
            raise NotFound(f"job {request.job!r} of experiment {request.experiment!r} has no log{rank} on this node")
        async for offset, data in log_reader.stream(path, request.offset, lambda: request.follow and live()):
            yield wire.StreamLogsResponse(data=data, offset=offset)

    async def JoinGang(  # noqa: D102
        self, request: wire.JoinGangRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.JoinGangResponse:
        require_scope(f"{request.run.experiment}/{request.run.job}")
        return wire.JoinGangResponse(place=self._runs.place(run_key_from_proto(request.run)))

    async def FetchSnapshot(  # noqa: D102
        self, request: wire.FetchSnapshotRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[wire.FetchSnapshotResponse]:
        require_scope(request.sha256)
        with self._snapshots.use(request.sha256) as path:
            async for response in peers.responses(path, request, self._outlet):
                yield response
