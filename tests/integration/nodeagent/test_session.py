"""Tests of the agent's session with the scheduler: lost connections, fencing, and runs that the scheduler no longer wants."""

from __future__ import annotations

import asyncio

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.plugins.processes import is_running

KEY = RunKey(StreamId("e1"), "j1", 1, 0)


async def test_nothing_is_lost_or_doubled_when_the_session_breaks(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    scheduler.acknowledge = False
    cluster.start(KEY, until=40, allowed=40, hyperparameters={"seconds": 0.01})
    for breaks in range(1, 6):
        await scheduler.reported(KEY, 6 * breaks)
        scheduler.drop_session("a")
        await scheduler.connected("a", breaks + 1)
    await scheduler.reported(KEY, 40)
    scheduler.acknowledge = True
    scheduler.drop_session("a")
    # A command that is sent without a session is delivered with the next session.
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 40)
    await scheduler.ended(KEY)
    assert [report.position for report in scheduler.reports(KEY)] == list(range(1, 41))
    assert [message.sequence for message in scheduler.received[KEY]] == list(range(1, len(scheduler.received[KEY]) + 1))
    assert scheduler.redelivered > 0
    await scheduler.until(lambda: not cluster.agents["a"].hello(0).runs)


async def test_training_goes_on_while_the_scheduler_is_away_and_its_reports_are_merged(cluster: Cluster) -> None:
    agent = await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY, until=200, allowed=200)
    await scheduler.reported(KEY, 1)
    scheduler.drop_session("a")
    await scheduler.reported(KEY, 200)
    assert [report.position for report in scheduler.reports(KEY)] == list(range(1, 201))
    assert agent.hello(0).node == "a"


async def test_a_run_that_is_not_wanted_any_more_is_killed_without_a_word(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY, hyperparameters={"seconds": 0.01}, allowed=10_000)
    pid = int((await scheduler.reported(KEY, 2)).metrics["pid"])
    scheduler.unwanted.add(KEY)
    scheduler.drop_session("a")
    await scheduler.connected("a", 2)
    await gone(pid)
    # The slot is free for another run, and a repeated start of the refused run is ignored.
    other = RunKey(StreamId("e1"), "j2", 1, 0)
    cluster.start(other)
    await scheduler.reported(other, 1)
    assert not any(message.HasField("ended") for message in scheduler.received[KEY])


async def test_an_older_scheduler_is_refused(cluster: Cluster) -> None:
    agent = await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY)
    await scheduler.reported(KEY, 1)
    scheduler.epoch = 3
    scheduler.drop_session("a")
    await scheduler.connected("a", 2)
    await scheduler.until(lambda: agent._session.connected)
    scheduler.epoch = 2
    scheduler.drop_session("a")
    await scheduler.connected("a", 5)
    assert scheduler.hellos["a"][-1].epoch == 3
    assert not agent._session.connected
    # The agent also ignores a command with an older scheduler epoch within a session.
    scheduler.epoch = 3
    await scheduler.until(lambda: agent._session.connected)
    scheduler.epoch = 1
    scheduler.decide("a", KEY, wire.DECISION_TERMINATE, 1)
    sessions = len(scheduler.hellos["a"])
    scheduler.epoch = 3
    await scheduler.connected("a", sessions + 1)
    assert not any(message.HasField("ended") for message in scheduler.received[KEY])


async def test_an_agent_that_ran_on_while_its_cluster_was_restored_begins_with_nothing(cluster: Cluster) -> None:
    await cluster.agent(slots=2)
    scheduler = cluster.scheduler
    over = RunKey(StreamId("e1"), "j0", 1, 0)
    cluster.start(over, until=2, allowed=2, slot=1)
    scheduler.decide("a", over, wire.DECISION_TERMINATE, 2)
    await scheduler.ended(over)
    cluster.start(KEY, hyperparameters={"seconds": 0.01}, allowed=10_000)
    pid = int((await scheduler.reported(KEY, 5)).metrics["pid"])
    scheduler.epoch = 9
    scheduler.restore("restored")
    await scheduler.connected("a", 2)
    (refused,) = scheduler.refused
    hello = scheduler.hellos["a"][-1]
    assert [(run.job, run.attempt) for run in refused.runs] == [("j1", 1)]
    assert [(run.job, run.attempt) for run in hello.discarded] == [("j1", 1)]
    assert (list(hello.runs), hello.history) == ([], "restored")
    assert hello.incarnation != refused.incarnation
    await gone(pid)
    # The restored scheduler gives the same numbers to other runs, also to those that had ended.
    for key, slot in ((KEY, 0), (over, 1)):
        cluster.start(key, until=3, allowed=3, slot=slot)
        await scheduler.reported(key, 3)
        assert [message.sequence for message in scheduler.received[key]] == list(
            range(1, len(scheduler.received[key]) + 1)
        )
    # The next session of the same history discards nothing.
    scheduler.drop_session("a")
    await scheduler.connected("a", 3)
    assert scheduler.hellos["a"][-1].incarnation == hello.incarnation
    assert not scheduler.hellos["a"][-1].discarded
    assert len(scheduler.refused) == 1


async def test_a_new_run_on_a_busy_slot_displaces_the_old_one(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY)
    await scheduler.reported(KEY, 1)
    newer = RunKey(StreamId("e1"), "j1", 2, 0)
    cluster.start(newer)
    ended = await scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_LOST
    assert "its slot was given to run 2" in ended.message
    await scheduler.reported(newer, 1)


async def test_a_stopping_agent_ends_its_runs_and_says_so(cluster: Cluster) -> None:
    agent = await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY)
    pid = int((await scheduler.reported(KEY, 1)).metrics["pid"])
    await agent.stop()
    assert not is_running(pid)
    ended = await scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_LOST
    assert "node a stops" in ended.message


async def test_a_run_may_be_killed_at_any_moment_of_its_start(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    for number, delay in enumerate((0.0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)):
        key = RunKey(StreamId("e1"), f"k{number}", 1, 0)
        cluster.start(
            key,
            hyperparameters={"seconds": 0.001},
            allowed=100_000,
            trainer=f"train.py:{'Walk' if number % 2 else 'Other'}",
        )
        await asyncio.sleep(delay)
        scheduler.send("a", key, kill=wire.KillRun())
        assert (await scheduler.ended(key)).reason == common_pb2.RUN_END_REASON_TERMINATED
    cluster.start(KEY)
    await scheduler.reported(KEY, 1)
    await scheduler.until(lambda: len(cluster.agents["a"].hello(0).runs) == 1)
