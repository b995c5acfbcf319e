"""Reads a job's output from the nodes on which it ran."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from hopyard._net.rpc import Backoff
from hopyard.client.types import Job, LogChunk, Node, NodeState
from hopyard.client.wire.connection import Connection
from hopyard.errors import NotFound, Unavailable
from hopyard.v1 import node_agent_pb2

_POLL_SECONDS: Final = 0.5
_STREAM_SECONDS: Final = 3600.0

Ask = Callable[[], Awaitable[Job]]


class LogReader:
    """Reads the output of one job, or of one rank of its gang, from the nodes on which it ran.

    A job that ran on several nodes has a log on each. The reader stores how far it has read each log, and later reads
    continue there.

    Args:
        connection: The connection to the cluster.
        experiment: Id of the experiment, or of the first one of its group. Nodes store logs under this id.
        job: Id of the job.
        nodes: Returns the current nodes of the cluster.
        present: Returns the current state of the job.
        rank: The rank whose output is read; 0 without a gang.
    """

    def __init__(
        self,
        connection: Connection,
        experiment: str,
        job: str,
        nodes: Callable[[], Awaitable[list[Node]]],
        present: Ask,
        rank: int = 0,
    ) -> None:
        self._connection = connection
        self._experiment = experiment
        self._job = job
        self._nodes = nodes
        self._present = present
        self._rank = rank
        self._offsets: dict[str, int] = {}

    async def written(self) -> AsyncGenerator[LogChunk]:
        """Yield the output that the nodes have now and that was not read before, node by node.

        Raises:
            NotFound: No reachable node has a log of the job or rank, because the job has not run yet, or its node is not reachable.
        """
        found, missed = False, []
        nodes = await self._nodes()
        for node in nodes:
            if node.state is NodeState.LOST:
                missed.append(node.id)
                continue
            try:
                async for chunk in self._stream(node, follow=False):
                    yield chunk
                found = True
            except NotFound:
                continue
            except Unavailable:
                missed.append(node.id)
        # The log is created with the first output: a job that has run and has no log has printed nothing.
        if found or (nodes and not missed and not self._rank and (await self._present()).attempt > 0):
            return
        beyond = f"; not reachable: {', '.join(missed)}; start its agent again" if missed else ""
        whose = f"rank {self._rank} of job {self._job}" if self._rank else f"job {self._job}"
        raise NotFound(f"no node has a log of {whose} of experiment {self._experiment}{beyond}")

    async def follow(self) -> AsyncGenerator[LogChunk]:
        """Yield the existing output of the job, then new output until the job has ended. Wait for a job that has not started.

        A node that is not reachable is tried again until the job has ended; this raises no error.
        """
        try:
            async for chunk in self.written():
                yield chunk
        except NotFound:
            pass  # the job has not started yet
        backoff, failures = Backoff(first=_POLL_SECONDS, most=5.0), 0
        while True:
            job = await self._present()
            homes = {slot.rpartition("/")[0] for slot in job.slots[self._rank : self._rank + 1]}
            for node in [node for node in await self._nodes() if node.id in homes]:
                try:
                    async for chunk in self._stream(node, follow=True):
                        failures = 0
                        yield chunk
                except NotFound:
                    continue
                except Unavailable:
                    failures += 1
            if job.state.ended:
                # The output between the last read and the end.
                async for chunk in self._rest():
                    yield chunk
                return
            await asyncio.sleep(backoff.bound(failures) if failures else _POLL_SECONDS)

    async def _rest(self) -> AsyncGenerator[LogChunk]:
        try:
            async for chunk in self.written():
                yield chunk
        except NotFound:
            return

    async def _stream(self, node: Node, *, follow: bool) -> AsyncGenerator[LogChunk]:
        request = node_agent_pb2.StreamLogsRequest(
            experiment=self._experiment,
            job=self._job,
            offset=self._offsets.get(node.id, 0),
            follow=follow,
            rank=self._rank,
        )
        headers = await self._connection.ticket(node.address, "StreamLogs", f"{self._experiment}/{self._job}")
        stub = self._connection.node(node.address)
        async for message in stub.StreamLogs(request, timeout=_STREAM_SECONDS, metadata=headers):
            self._offsets[node.id] = message.offset + len(message.data)
            yield LogChunk(node.id, message.data, message.offset)
