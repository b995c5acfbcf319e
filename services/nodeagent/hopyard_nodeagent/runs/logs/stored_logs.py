"""Reads the logs of jobs in the folder of an agent that does not run: the plugin `agent` of the entry-point group `hopyard.readers`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from hopyard.errors import NotFound
from hopyard.v1 import node_agent_pb2 as wire
from hopyard.v1.node_agent_pb2_grpc import NodeAgentServiceServicer, add_NodeAgentServiceServicer_to_server
from hopyard_nodeagent.paths import job_log
from hopyard_nodeagent.runs.logs import log_reader


class StoredLogs:
    """The logs in the data folder of an agent that does not run. The folder is neither locked nor changed.

    Args:
        data: The data folder of the agent.
    """

    def __init__(self, data: Path) -> None:
        self._data = data

    def register(self, server: grpc.aio.Server) -> None:
        """Add the servicer of the agent to a server, or to a `ServicerChannel`, which refuses all calls but `StreamLogs`."""
        # The server refuses the methods that the servicer does not implement.
        add_NodeAgentServiceServicer_to_server(_LogServicer(self._data), server)  # type: ignore[abstract]

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""


class _LogServicer(NodeAgentServiceServicer):
    """The logs of jobs.

    Args:
        data: The data folder of the agent.
    """

    def __init__(self, data: Path) -> None:
        self._data = data

    async def StreamLogs(self, request: wire.StreamLogsRequest, context: Any) -> AsyncIterator[wire.StreamLogsResponse]:
        """Send the log of a job (of one rank) from the requested offset to its end, and end. NotFound: this agent has no log of it."""
        path = job_log(self._data, request.experiment, request.job, request.rank)
        if not path.is_file():
            rank = f" of rank {request.rank}" if request.rank else ""
            raise NotFound(f"job {request.job!r} of experiment {request.experiment!r} has no log{rank} on this node")
        async for offset, data in log_reader.stream(path, request.offset, lambda: False):
            yield wire.StreamLogsResponse(data=data, offset=offset)
