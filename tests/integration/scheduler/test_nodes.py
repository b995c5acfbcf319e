"""Tests of nodes that are drained, leave, are lost and are forgotten, on a real scheduler with real agents."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import JobState, Node, NodeState
from hopyard.errors import Conflict, InvalidInput, NotFound
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from tests.integration.restartable import Restartable
from tests.integration.scheduler.conftest import experiment
from tests.timing import HANG_SECONDS, scaled


@pytest.fixture
async def pieces(tmp_path: Path) -> AsyncIterator[Restartable]:
    """A cluster of the node n with one slot, whose scheduler can be restarted."""
    async with Restartable.on(tmp_path / "data", slots=1) as made:
        yield made


async def node(client: AsyncClient, name: str, holds: Callable[[Node], bool]) -> Node:
    """Wait until the node with this name satisfies `holds`, and return it."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            found = next((one for one in await client.nodes() if one.id == name), None)
            if found is not None and holds(found):
                return found
            await asyncio.sleep(0.02)  # Other processes act.


async def in_state(client: AsyncClient, name: str, state: NodeState) -> Node:
    return await node(client, name, lambda one: one.state is state)


async def test_a_drain_suspends_and_survives_a_restart_of_the_scheduler(pieces: Restartable, tmp_path: Path) -> None:
    await pieces.start()
    async with AsyncClient(server=pieces.address) as client:
        assert (await in_state(client, "n", NodeState.UP)).reason == ""
        created = await client.create(experiment(tmp_path / "e", jobs=1, length=5000, pace=0.05))
        async for _ in client.watch(created.id):
            if (await client.jobs(created.id, JobState.RUNNING))[:1]:
                break
        shown = await client.drain_node("n", deadline=10 * HANG_SECONDS)
        assert (shown.state, shown.reason_code) == (NodeState.DRAINING, ReasonCode.DRAINED_BY_PERSON)
        assert shown.drain_seconds_left is not None
        assert 0 < shown.drain_seconds_left <= 10 * HANG_SECONDS
        drained = await in_state(client, "n", NodeState.DRAINED)
        assert drained.state_seconds is not None
        (job,) = await client.jobs(created.id)
        assert (job.state, job.reason) == (
            JobState.SUSPENDED,
            "waits for a slot: the cluster has no slot (1 is on drained or leaving nodes: n)",
        )
        assert all(snapshot.stored for snapshot in job.snapshots)
        await pieces.halt()
        await pieces.start()
        await in_state(client, "n", NodeState.DRAINED)
        again = await client.drain_node("n")  # Idempotent: it keeps the deadline.
        assert again.drain_seconds_left is not None
        assert (await client.undrain_node("n")).state is NodeState.UP
        assert (await client.undrain_node("n")).state is NodeState.UP
        async for _ in client.watch(created.id):
            if (await client.jobs(created.id, JobState.RUNNING))[:1]:
                break
        (job,) = await client.jobs(created.id)
        assert (job.attempt, job.suspends) == (2, 1)
        await client.stop(created.id)
        await client.wait(created.id, timeout=HANG_SECONDS)


async def test_runs_that_are_left_at_the_deadline_of_a_drain_are_lost(pieces: Restartable, tmp_path: Path) -> None:
    await pieces.start()
    async with AsyncClient(server=pieces.address) as client:
        await in_state(client, "n", NodeState.UP)
        created = await client.create(experiment(tmp_path / "e", jobs=1, length=9, free=2, slow=10 * HANG_SECONDS))
        async with asyncio.timeout(HANG_SECONDS):
            while not any(job.position == 2 for job in await client.jobs(created.id)):  # noqa: ASYNC110 - processes train
                await asyncio.sleep(0.02)
        await client.drain_node("n", deadline=scaled(0.5))
        await in_state(client, "n", NodeState.DRAINED)
        (job,) = await client.jobs(created.id)
        assert job.suspends == 0
        assert "the drain of node n has reached its deadline" in job.reason
        (tmp_path / "e" / "gate").touch()
        await client.undrain_node("n")
        assert (await client.wait(created.id, timeout=HANG_SECONDS)).jobs == {"COMPLETED": 1}


async def test_an_agent_that_leaves_is_lost_at_once_and_forgotten_on_request(
    pieces: Restartable, tmp_path: Path
) -> None:
    await pieces.start(lease_seconds=10 * HANG_SECONDS)
    second = NodeAgent(
        AgentSettings(node="m", scheduler=pieces.address, data=tmp_path / "m", slots=(SlotSettings(id="m/0"),))
    )
    await second.start()
    async with AsyncClient(server=pieces.address) as client:
        await in_state(client, "m", NodeState.UP)
        with pytest.raises(Conflict, match="node m is connected: stop its agent first, or use hopyard drain m"):
            await client.forget_node("m")
        with pytest.raises(NotFound, match=r"there is no node 'mm'; did you mean m\?"):
            await client.drain_node("mm")
        with pytest.raises(NotFound, match="there is no node 'zebra'; there are: m, n"):
            await client.undrain_node("zebra")
        with pytest.raises(InvalidInput, match="deadline_seconds: found -1; allowed: 0 to"):
            await client.drain_node("m", deadline=-1)
        assert await second.leave(10 * HANG_SECONDS)
        assert (await in_state(client, "m", NodeState.LEAVING)).reason == "its agent is stopping"
        await second.stop()
        lost = await in_state(client, "m", NodeState.LOST)  # Before its lease ends.
        assert (lost.reason, lost.reason_code) == ("its agent was stopped", ReasonCode.AGENT_STOPPED)
        await client.forget_node("m")
        assert [one.id for one in await client.nodes()] == ["n"]
        with pytest.raises(NotFound, match="there is no node 'm'; there are: n"):
            await client.forget_node("m")
        await pieces.halt()
        await pieces.start()
        await in_state(client, "n", NodeState.UP)
        assert [one.id for one in await client.nodes()] == ["n"]


async def test_a_node_with_the_only_copy_of_a_snapshot_is_forgotten_by_force_only(
    pieces: Restartable, tmp_path: Path
) -> None:
    await pieces.start(lease_seconds=scaled(1.0), heartbeat_seconds=0.2)
    async with AsyncClient(server=pieces.address) as client:
        await in_state(client, "n", NodeState.UP)
        more = "snapshot: {every: 1, ship_every: 0}"
        created = await client.create(experiment(tmp_path / "e", jobs=1, length=5000, pace=0.05, more=more))
        async with asyncio.timeout(HANG_SECONDS):
            while not any(job.snapshots for job in await client.jobs(created.id)):  # noqa: ASYNC110 - processes train
                await asyncio.sleep(0.02)
        assert pieces.agent is not None
        await pieces.agent.stop()  # Without `leave`, as if it had crashed.
        lost = await in_state(client, "n", NodeState.LOST)
        assert lost.reason_args["experiments"] == created.id
        with pytest.raises(Conflict, match=rf"node n had the only copies of \d+ snapshots? of {created.id}; .*--force"):
            await client.forget_node("n")
        await client.forget_node("n", force=True)
        assert await client.nodes() == []
        await client.stop(created.id)


async def test_a_lost_node_leaves_the_list_after_a_time_unless_it_is_drained(
    pieces: Restartable, tmp_path: Path
) -> None:
    await pieces.start(lease_seconds=scaled(1.0), heartbeat_seconds=0.2, forget_seconds=scaled(0.5))
    second = NodeAgent(
        AgentSettings(node="m", scheduler=pieces.address, data=tmp_path / "m", slots=(SlotSettings(id="m/0"),))
    )
    await second.start()
    async with AsyncClient(server=pieces.address) as client:
        await in_state(client, "n", NodeState.UP)
        await in_state(client, "m", NodeState.UP)
        await client.drain_node("m")
        await second.stop()
        assert pieces.agent is not None
        await pieces.agent.stop()
        async with asyncio.timeout(HANG_SECONDS):
            while [one.id for one in await client.nodes()] != ["m"]:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
        await in_state(client, "m", NodeState.LOST)
