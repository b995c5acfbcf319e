"""Tests that an agent whose data folder belongs to another cluster is refused, so that its snapshots are not deleted as unknown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import NodeState
from hopyard.errors import Conflict
from hopyard_appstat.blobs.cluster_id import store_owner
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from tests.integration.scheduler.test_deletion import finished
from tests.integration.scheduler.test_garbage_collection import Pieces, until
from tests.timing import HANG_SECONDS


@pytest.fixture
async def clusters(tmp_path: Path) -> AsyncIterator[tuple[Pieces, Pieces]]:
    """Two clusters without agents."""
    found = Pieces(tmp_path / "one"), Pieces(tmp_path / "two")
    for pieces in found:
        await pieces.appstat.start()
        await pieces.hpgen.start()
        await pieces.start_scheduler()
    yield found
    for pieces in found:
        assert pieces.scheduler is not None
        await pieces.scheduler.stop(1)
        await pieces.hpgen.stop(1)
        await pieces.appstat.stop(1)


def agent_of(pieces: Pieces, data: Path, *, adopt: bool = False) -> NodeAgent:
    """Return an agent with this data folder for a cluster."""
    assert pieces.scheduler is not None
    slots = (SlotSettings(id="n/0", cpus=1),)
    return NodeAgent(AgentSettings(node="n", scheduler=pieces.scheduler.address, data=data, slots=slots, adopt=adopt))


async def test_an_agent_of_another_cluster_is_refused_until_it_is_adopted(
    clusters: tuple[Pieces, Pieces], tmp_path: Path
) -> None:
    one, two = clusters
    assert two.scheduler is not None
    data, file = tmp_path / "agent", tmp_path / "agent" / "agent.cluster"
    agent = agent_of(one, data)
    await agent.start()
    assert one.scheduler is not None
    async with AsyncClient(server=one.scheduler.address, patience=HANG_SECONDS) as client:
        await finished(client, tmp_path / "e", jobs=1)
    await agent.stop()
    snapshots = sorted(path.name for path in (data / "snapshots").glob("[!.]*"))
    assert snapshots
    first, other = store_owner(one.data / "appstat" / "store"), store_owner(two.data / "appstat" / "store")
    assert file.read_text() == first

    agent = agent_of(two, data)
    await agent.start()
    refused = f"node n belongs to cluster {first}, and this scheduler serves cluster {other}; .*--adopt"
    with pytest.raises(Conflict, match=refused):
        async with asyncio.timeout(HANG_SECONDS):
            await agent.wait(asyncio.Event())
    with pytest.raises(Conflict, match=refused):
        await agent.stop()
    assert sorted(path.name for path in (data / "snapshots").glob("[!.]*")) == snapshots
    assert file.read_text() == first

    agent = agent_of(two, data, adopt=True)
    await agent.start()
    await until(lambda: file.read_text() == other)
    await agent.stop()
    agent = agent_of(two, data)
    await agent.start()
    async with AsyncClient(server=two.scheduler.address, patience=HANG_SECONDS) as client:

        async def up() -> bool:
            return [node.state for node in await client.nodes()] == [NodeState.UP]

        await until(up)
        await two.scheduler._copies.examine_all()
    await agent.stop()
    # The adopted snapshots are unknown to the cluster, so they stay for a grace.
    assert sorted(path.name for path in (data / "snapshots").glob("[!.]*")) == snapshots
