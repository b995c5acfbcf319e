"""Tests of spare runners, which are started before there is a run for them."""

from __future__ import annotations

import asyncio

import pytest

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.children import running
from tests.integration.nodeagent.cluster import Cluster, gone

FIRST, SECOND, OTHER = (
    RunKey(StreamId("e1"), "j1", 1, 0),
    RunKey(StreamId("e2"), "j1", 1, 0),
    RunKey(StreamId("e3"), "j1", 1, 0),
)


async def spares(count: int) -> set[int]:
    """Wait until this agent has `count` training processes and return their ids."""
    while True:
        found = set(running("hopyard._runtime.runner"))
        if len(found) == count:
            return found
        await asyncio.sleep(0.02)


async def test_the_first_experiment_on_a_slot_takes_the_process_that_is_there(cluster: Cluster) -> None:
    await cluster.agent(slots=3, spare_runners=2)
    there = await spares(2)
    cluster.start(FIRST, until=2, allowed=2)
    cluster.start(SECOND, slot=1, until=2, allowed=2)
    pids = {int((await cluster.scheduler.reported(key, 1)).metrics["pid"]) for key in (FIRST, SECOND)}
    assert pids == there


async def test_who_wants_a_special_process_gets_another_one(cluster: Cluster) -> None:
    await cluster.agent(spare_runners=1)
    (spare,) = await spares(1)
    cluster.start(FIRST, until=1, allowed=9, environment={"COLOUR": "green"})
    first = int((await cluster.scheduler.reported(FIRST, 1)).metrics["pid"])
    assert first != spare
    await gone(spare)


async def test_what_an_experiment_has_used_is_no_spare_of_another(cluster: Cluster) -> None:
    await cluster.agent(spare_runners=1)
    (spare,) = await spares(1)
    for number, key in enumerate((FIRST, OTHER)):
        cluster.start(key, until=1, allowed=9)
        pid = int((await cluster.scheduler.reported(key, 1)).metrics["pid"])
        assert (pid == spare) is (number == 0)
        cluster.scheduler.decide("a", key, wire.DECISION_CONTINUE, 1)
        await cluster.scheduler.ended(key)


async def test_an_agent_that_can_start_none_serves_all_the_same(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = cluster.folder / "a" / "logs" / "runners" / "a%2F0.log"
    blocked.mkdir(parents=True)
    await cluster.agent(spare_runners=1)
    while "no process can be started before there is a run for it" not in caplog.text:  # noqa: ASYNC110 (it is only logged)
        await asyncio.sleep(0.02)
    blocked.rmdir()
    cluster.start(FIRST, until=1, allowed=9)
    await cluster.scheduler.reported(FIRST, 1)
