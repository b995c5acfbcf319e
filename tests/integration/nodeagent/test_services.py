"""Tests of the agent's services: NodeAgentService for every caller, ApplicationService only for the agent's own processes."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard._net.rpc import channel
from hopyard._net.rpc.values import run_key_from_proto
from hopyard.errors import InvalidInput, NotFound, Unauthenticated
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import application_pb2, application_pb2_grpc, node_agent_pb2, node_agent_pb2_grpc
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.nodeagent.cluster import Cluster
from tests.integration.nodeagent.fakes import headers

KEY = RunKey(StreamId("e1"), "j1", 1, 0)


async def test_status_tells_what_runs(cluster: Cluster) -> None:
    agent = await cluster.agent(slots=2)
    cluster.start(KEY, slot=1, allowed=2, snapshot_at=[1])
    await cluster.scheduler.reported(KEY, 2)
    async with channel(agent.address, token=None) as connection:
        stub = node_agent_pb2_grpc.NodeAgentServiceStub(connection)
        status = await stub.GetStatus(node_agent_pb2.GetStatusRequest(), metadata=headers("GetStatus", ""))
    assert status.connected
    assert [slot.job for slot in status.node.slots] == ["", "j1"]
    assert [(slot.rank, slot.world) for slot in status.node.slots] == [(0, 0), (0, 1)]
    assert [run_key_from_proto(run) for run in status.runs] == [KEY]
    assert status.snapshot_bytes > 0


async def test_logs_are_streamed_from_any_offset_and_followed_to_the_end_of_the_run(cluster: Cluster) -> None:
    agent = await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY)
    await scheduler.reported(KEY, 1)
    async with channel(agent.address, token=None) as connection:
        stub = node_agent_pb2_grpc.NodeAgentServiceStub(connection)
        logs = headers("StreamLogs", "e1/j1")

        async def read(offset: int, follow: bool) -> str:
            request = node_agent_pb2.StreamLogsRequest(experiment="e1", job="j1", offset=offset, follow=follow)
            return b"".join([response.data async for response in stub.StreamLogs(request, metadata=logs)]).decode()

        assert await read(0, False) == "job j1 begins\n"
        assert await read(4, False) == "j1 begins\n"
        assert await read(-7, False) == "begins\n"
        followed = stub.StreamLogs(
            node_agent_pb2.StreamLogsRequest(experiment="e1", job="j1", follow=True), metadata=logs
        )
        first = await followed.read()
        assert isinstance(first, node_agent_pb2.StreamLogsResponse)
        assert (first.offset, first.data) == (0, b"job j1 begins\n")
        scheduler.decide("a", KEY, wire.DECISION_TERMINATE, 1)
        await scheduler.ended(KEY)
        assert not isinstance(await followed.read(), node_agent_pb2.StreamLogsResponse)
        other = node_agent_pb2.StreamLogsRequest(experiment="e1", job="../../x")
        with pytest.raises(NotFound, match="has no log on this node"):
            await stub.StreamLogs(other, metadata=headers("StreamLogs", "e1/../../x")).read()


async def test_snapshots_are_given_by_hash_only(cluster: Cluster) -> None:
    agent = await cluster.agent()
    cluster.start(KEY, snapshot_at=[1])
    await cluster.scheduler.reported(KEY, 1)
    await cluster.scheduler.until(lambda: bool(cluster.scheduler.snapshots(KEY)))
    sha256 = cluster.scheduler.snapshots(KEY)[0].sha256
    async with channel(agent.address, token=None) as connection:
        stub = node_agent_pb2_grpc.NodeAgentServiceStub(connection)
        chunks = [
            r.data
            async for r in stub.FetchSnapshot(
                node_agent_pb2.FetchSnapshotRequest(sha256=sha256), metadata=headers("FetchSnapshot", sha256)
            )
        ]
        assert hashlib.sha256(b"".join(chunks)).hexdigest() == sha256
        for bad, error in (("../agent.address", InvalidInput), ("0" * 64, NotFound)):
            request = node_agent_pb2.FetchSnapshotRequest(sha256=bad)
            with pytest.raises(error):
                await stub.FetchSnapshot(request, metadata=headers("FetchSnapshot", bad)).read()


@pytest.mark.parametrize("metadata", [None, (("authorization", "Bearer wrong"),), (("authorization", "Basic x"),)])
async def test_only_processes_of_the_agent_may_attach(
    cluster: Cluster, metadata: tuple[tuple[str, str], ...] | None
) -> None:
    agent = await cluster.agent()
    cluster.start(KEY)
    await cluster.scheduler.reported(KEY, 1)

    async def hello() -> AsyncIterator[application_pb2.AttachRequest]:
        yield application_pb2.AttachRequest(hello=application_pb2.AttachHello(pid=os.getpid()))

    async with channel(agent._slots.application_address, token=None) as connection:
        stub = application_pb2_grpc.ApplicationServiceStub(connection)
        with pytest.raises(Unauthenticated, match="token"):
            await stub.Attach(hello(), metadata=metadata).read()
        with pytest.raises(Unauthenticated, match="token"):
            await stub.LoadState(application_pb2.LoadStateRequest(), metadata=metadata).read()


async def test_a_process_may_save_and_load_its_state_through_the_agent(cluster: Cluster) -> None:
    agent = await cluster.agent()
    cluster.start(KEY)
    pid = int((await cluster.scheduler.reported(KEY, 1)).metrics["pid"])
    environment = await asyncio.to_thread(Path(f"/proc/{pid}/environ").read_bytes)
    variables = dict(entry.split(b"=", 1) for entry in environment.split(b"\0") if entry)
    metadata = (("authorization", f"Bearer {variables[b'HOPYARD_TOKEN'].decode()}"),)

    async def state() -> AsyncIterator[application_pb2.SaveStateRequest]:
        yield application_pb2.SaveStateRequest(position=1, data=b"some ")
        yield application_pb2.SaveStateRequest(data=b"state")

    async with channel(variables[b"HOPYARD_AGENT"].decode(), token=None) as connection:
        stub = application_pb2_grpc.ApplicationServiceStub(connection)
        snapshot = (await stub.SaveState(state(), metadata=metadata)).snapshot
        assert snapshot.sha256 == hashlib.sha256(b"some state").hexdigest()
        assert (snapshot.job, snapshot.position, snapshot.size_bytes) == ("j1", 1, 10)
        with pytest.raises(NotFound, match="starts from scratch"):
            await stub.LoadState(application_pb2.LoadStateRequest(), metadata=metadata).read()
    assert (cluster.folder / "a" / "snapshots" / snapshot.sha256).read_bytes() == b"some state"
    assert agent.address != variables[b"HOPYARD_AGENT"].decode()
