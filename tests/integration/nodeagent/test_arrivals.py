"""Tests of a run whose trainer is constructed while its snapshot is fetched: success and failure of either are reported as usual."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from hopyard._net.server import Server
from hopyard.errors import Unavailable
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2, node_agent_pb2, node_agent_pb2_grpc
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent import servicer
from hopyard_nodeagent.runs.training_process import Runner
from hopyard_nodeagent.snapshots import peers
from tests.access import AcceptEveryone
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.timing import HANG_SECONDS

KEY = RunKey(StreamId("e1"), "j1", 2, 0)
NEXT = RunKey(StreamId("e1"), "j2", 1, 0)


class Holder(node_agent_pb2_grpc.NodeAgentServiceServicer):
    """Another agent: it sends the snapshot at `path` once the test sets `let`, and fails then if `breaks` is true."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked, self.let, self.left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.breaks = False
        self.requests = 0

    async def FetchSnapshot(
        self, request: node_agent_pb2.FetchSnapshotRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[node_agent_pb2.FetchSnapshotResponse]:
        self.requests += 1
        self.asked.set()
        try:
            await self.let.wait()
            async for response in peers.responses(self.path, request, None):
                yield response
                if self.breaks:
                    raise Unavailable("it breaks")
        finally:
            self.left.set()


class Hop:
    """A job whose snapshot is on another agent."""

    def __init__(self, cluster: Cluster, snapshot: common_pb2.Snapshot, holder: Holder, address: str) -> None:
        self.cluster, self.snapshot, self.holder, self.address = cluster, snapshot, holder, address
        self.mark = cluster.folder / "mark"

    def start(self, fail: str = "", gate: Path | None = None) -> None:
        """Start the job's next run; with `gate` its trainer is constructed only once that file exists."""
        self.cluster.start(
            KEY,
            trainer="train.py:Marked",
            hyperparameters={"mark": str(self.mark), "fail": fail, "gate": str(gate or "")},
            snapshot=self.snapshot,
            snapshot_peers=[self.address],
            until=4,
            allowed=4,
        )

    async def made(self) -> tuple[int, int]:
        """Wait until the trainer is constructed; return the id of its process and the time."""
        async with asyncio.timeout(HANG_SECONDS):
            while not self.mark.exists():  # noqa: ASYNC110 (no event: another process creates it)
                await asyncio.sleep(0.02)
        pid, at = self.mark.read_text().split()
        return int(pid), int(at)

    @property
    def said(self) -> list[str | None]:
        """Return the kinds of the messages that the run sent."""
        return [message.WhichOneof("body") for message in self.cluster.scheduler.received[KEY]]

    async def next_pid(self) -> int:
        """Start the slot's next run and return the id of its process."""
        self.cluster.start(NEXT, trainer="train.py:Marked", hyperparameters={"mark": str(self.mark)})
        return int((await self.cluster.scheduler.reported(NEXT, 1)).metrics["pid"])

    def here(self) -> list[str]:
        """Return the names of the files in the agent's snapshot folder."""
        return [path.name for path in (self.cluster.folder / "a" / "snapshots").iterdir()]


@pytest.fixture
async def hop(cluster: Cluster) -> AsyncIterator[Hop]:
    await cluster.agent()
    before = RunKey(StreamId("e1"), "j1", 1, 0)
    cluster.start(before, until=2, allowed=2, completes=True, ships_by_order=True)
    snapshot = (await cluster.scheduler.ended(before)).snapshot
    elsewhere = (cluster.folder / "a" / "snapshots" / snapshot.sha256).rename(cluster.folder / "elsewhere")
    holder, server = Holder(elsewhere), Server("agent", authenticator=AcceptEveryone("ticket", "FetchSnapshot"))  # type: ignore[abstract]
    server.add(node_agent_pb2_grpc.add_NodeAgentServiceServicer_to_server, holder, servicer.SERVICE)
    yield Hop(cluster, snapshot, holder, await server.start())
    await server.stop(grace=0)


async def test_a_model_is_made_while_its_snapshot_is_on_its_way(hop: Hop) -> None:
    scheduler = hop.cluster.scheduler
    hop.start()
    await hop.holder.asked.wait()
    await hop.made()
    assert hop.said == []
    hop.holder.let.set()
    reached = await scheduler.reported(KEY, 4)
    assert hop.said[0] == "started"
    started = scheduler.received[KEY][0].started
    assert (started.position, started.fetched_bytes) == (2, hop.snapshot.size_bytes)
    alone = RunKey(StreamId("e1"), "j3", 1, 0)
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 4)
    await scheduler.ended(KEY)
    hop.cluster.start(alone, until=4, allowed=4)
    assert (await scheduler.reported(alone, 4)).metrics["x"] == reached.metrics["x"]


async def test_what_is_decided_meanwhile_holds(hop: Hop) -> None:
    scheduler = hop.cluster.scheduler
    hop.start()
    await hop.made()
    scheduler.decide("a", KEY, wire.DECISION_SUSPEND, 2)
    scheduler.send("a", KEY, amend=wire.AmendRun(ticket="t", until=9))
    assert (await scheduler.amended(KEY, "t")).accepted
    hop.holder.let.set()
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 3)


async def test_a_library_that_does_not_wait_begins_when_the_snapshot_is_there(
    hop: Hop, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = property(lambda runner: False, lambda runner, said: None)
    monkeypatch.setattr(Runner, "awaits_snapshots", never, raising=False)
    # The earlier process has announced that it waits; a run of another program gets a new process.
    hop.start()
    await hop.holder.asked.wait()
    let = time.time_ns()
    hop.holder.let.set()
    _, made = await hop.made()
    assert made > let
    await hop.cluster.scheduler.reported(KEY, 4)


@pytest.mark.parametrize("wrong", [False, True], ids=["it breaks", "other bytes"])
async def test_a_snapshot_that_does_not_come_loses_the_run_and_keeps_the_process(hop: Hop, wrong: bool) -> None:
    gate = hop.cluster.folder / "gate"
    hop.start(gate=gate)
    pid, _ = await hop.made()
    hop.holder.breaks = not wrong
    if wrong:
        with next(hop.holder.path.rglob("walk.json")).open("r+b") as file:
            file.write(b"#")
    hop.holder.let.set()
    # The agent knows now that no snapshot comes, while the trainer is still being constructed.
    await hop.holder.left.wait()
    gate.touch()
    ended = await hop.cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_LOST, common_pb2.FAILURE_CLASS_INFRASTRUCTURE)
    assert ended.snapshot_missing
    assert f"snapshot {hop.snapshot.sha256} cannot be got: {hop.address}: " in ended.message
    assert ("with the hash" if wrong else "it breaks") in ended.message
    assert hop.here() == []
    assert await hop.next_pid() == pid


async def test_a_store_that_cannot_be_asked_loses_the_run_and_no_snapshot(hop: Hop) -> None:
    hop.start()
    await hop.made()
    hop.holder.breaks, hop.cluster.store.available = True, False
    hop.holder.let.set()
    ended = await hop.cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.snapshot_missing) == (common_pb2.RUN_END_REASON_LOST, False)
    assert "the run could not be prepared: " in ended.message
    hop.cluster.store.available = True


async def test_a_model_that_cannot_be_made_fails_the_run_and_nobody_waits_for_its_snapshot(hop: Hop) -> None:
    hop.start(fail="build")
    ended = await hop.cluster.scheduler.ended(KEY)
    pid, _ = await hop.made()
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert ended.message.startswith("build at position 0: ValueError: a bad model")
    await hop.holder.left.wait()
    assert hop.here() == []
    assert await hop.next_pid() == pid


async def test_a_model_that_cannot_be_made_is_made_once_and_its_run_is_not_lost(hop: Hop) -> None:
    gate, scheduler = hop.cluster.folder / "gate", hop.cluster.scheduler
    hop.start(fail="build", gate=gate)
    await hop.made()
    scheduler.send("a", KEY, amend=wire.AmendRun(ticket="t", until=9))
    async with asyncio.timeout(HANG_SECONDS):
        while not hop.cluster.agents["a"]._runs.all()[0].commanded:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.02)
    gate.touch()
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert hop.holder.requests == 1


async def test_a_process_that_dies_meanwhile_fails_the_run(hop: Hop) -> None:
    hop.start(fail="exit in build")
    ended = await hop.cluster.scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_FAILED
    assert "the training process ended with exit code 3" in ended.message
    await hop.holder.left.wait()
    pid, _ = await hop.made()
    assert await hop.next_pid() != pid


async def test_a_run_that_is_not_wanted_any_more_ends_at_once(hop: Hop) -> None:
    scheduler = hop.cluster.scheduler
    hop.start()
    pid, _ = await hop.made()
    scheduler.send("a", KEY, kill=wire.KillRun(reason="a test wants it"))
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_TERMINATED, 2)
    await gone(pid)
    await hop.holder.left.wait()
    assert hop.here() == []
    assert await hop.next_pid() != pid
