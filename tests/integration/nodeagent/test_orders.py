"""Tests that a restarted agent uploads a snapshot of its earlier incarnation when the scheduler orders it."""

from __future__ import annotations

from typing import Any

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.agent import NodeAgent
from tests.integration.nodeagent.cluster import Cluster

KEY = RunKey(StreamId("e1"), "j1", 1, 0)


async def restarted(cluster: Cluster) -> tuple[NodeAgent, str]:
    """Return an agent that was restarted before its run's snapshot was uploaded, and the hash of that snapshot."""
    store, scheduler = cluster.store, cluster.scheduler
    first = await cluster.agent()
    cluster.start(KEY, snapshot_at=[2])
    await scheduler.reported(KEY, 1)
    store.available = False
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 1)
    await scheduler.until(lambda: bool(scheduler.snapshots(KEY)))
    await first.stop()
    scheduler.unwanted.add(KEY)
    store.available = True
    second = await cluster.agent()
    await scheduler.connected("a", 2)
    return second, scheduler.snapshots(KEY)[0].sha256


def order(number: int, sha256: str) -> dict[str, Any]:
    shipment = wire.ShipmentOrder(experiment="e1", number=number, job="j1", position=2, sha256=sha256)
    return {"ship_snapshots": wire.ShipSnapshots(orders=[shipment])}


async def test_what_is_ordered_is_shipped_once_and_answered_each_time(cluster: Cluster) -> None:
    _, sha256 = await restarted(cluster)
    scheduler = cluster.scheduler
    assert sha256 not in cluster.store.blobs
    scheduler.say("a", **order(3, sha256))
    scheduler.say("a", **order(3, sha256))
    await scheduler.until(lambda: bool(scheduler.shipped))
    assert sha256 in cluster.store.blobs
    said = scheduler.shipped[0]
    assert (said.order.experiment, said.order.number, said.order.position, said.error) == ("e1", 3, 2, "")


async def test_an_answer_is_said_again_until_it_is_acknowledged(cluster: Cluster) -> None:
    agent, sha256 = await restarted(cluster)
    scheduler = cluster.scheduler
    scheduler.acknowledge = False
    scheduler.say("a", **order(1, sha256))
    await scheduler.until(lambda: len(scheduler.shipped) == 1)
    scheduler.drop_session("a")
    await scheduler.until(lambda: len(scheduler.shipped) == 2)
    scheduler.acknowledge = True
    scheduler.drop_session("a")
    await scheduler.until(lambda: len(scheduler.shipped) == 3 and not agent.unacknowledged_shipments())
    assert {answer.order.number for answer in scheduler.shipped} == {1}


async def test_what_is_not_there_any_more_is_answered_with_the_reason(cluster: Cluster) -> None:
    _, sha256 = await restarted(cluster)
    scheduler = cluster.scheduler
    scheduler.say("a", forget_snapshots=wire.ForgetSnapshots(sha256=[sha256]))
    scheduler.say("a", **order(1, sha256))
    await scheduler.until(lambda: bool(scheduler.shipped))
    assert scheduler.shipped[0].error == "it is not on this node any more"
    assert sha256 not in cluster.store.blobs
