"""Tests of runs on one agent with real processes: reports, decisions, amendments, snapshots, reuse of processes."""

from __future__ import annotations

import asyncio
import math

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.nodeagent.cluster import Cluster
from tests.timing import HANG_SECONDS

KEY = RunKey(StreamId("e1"), "j1", 1, 0)


async def test_a_run_waits_for_decisions_and_is_suspended_with_a_snapshot(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY)
    first = await scheduler.reported(KEY, 1)
    assert set(first.metrics) == {"x", "pid", "threads", "square"}
    assert first.examples == 17
    assert first.in_force.values["step"].double_value == 0.5
    assert not first.at_until
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 1)
    second = await scheduler.reported(KEY, 2)
    assert not second.HasField("in_force")
    scheduler.decide("a", KEY, wire.DECISION_SUSPEND, 2)
    ended = await scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_SUSPENDED
    assert (ended.position, ended.snapshot.position, list(ended.snapshot.nodes)) == (2, 2, ["a"])
    await scheduler.until(lambda: any(m.HasField("snapshot_stored") for m in scheduler.received[KEY]))
    assert ended.snapshot.sha256 in cluster.store.blobs
    assert [m.WhichOneof("body") for m in scheduler.received[KEY]][:2] == ["started", "reports"]
    assert "job j1 begins" in cluster.log("a", KEY)


async def test_reports_flow_without_waiting_below_allowed_and_until_parks(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY, until=5, allowed=5, snapshot_at=[2])
    parked = await scheduler.reported(KEY, 5)
    assert parked.at_until
    assert [report.position for report in scheduler.reports(KEY)] == [1, 2, 3, 4, 5]
    assert [snapshot.position for snapshot in scheduler.snapshots(KEY)] == [2]
    scheduler.decide("a", KEY, wire.DECISION_PARK, 5)
    scheduler.send("a", KEY, amend=wire.AmendRun(ticket="t1", until=7))
    assert (await scheduler.amended(KEY, "t1")).accepted
    # Parked by a decision: the amendment alone releases it, up to the next position that needs a decision.
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, (await scheduler.reported(KEY, 6)).position)
    assert (await scheduler.reported(KEY, 7)).at_until
    scheduler.send("a", KEY, amend=wire.AmendRun(ticket="t2", until=3))
    late = await scheduler.amended(KEY, "t2")
    assert (late.accepted, late.position) == (False, 7)
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 7)
    ended = await scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_UNTIL
    assert ended.snapshot.position == 7


async def test_terminate_saves_nothing_and_kill_ends_at_once(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY)
    await scheduler.reported(KEY, 1)
    scheduler.decide("a", KEY, wire.DECISION_TERMINATE, 1)
    ended = await scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_TERMINATED
    assert not ended.HasField("snapshot")
    hanging = RunKey(StreamId("e1"), "j2", 1, 0)
    cluster.start(hanging, hyperparameters={"fail": "hang", "at": 2}, allowed=9)
    await scheduler.reported(hanging, 1)
    scheduler.send("a", hanging, kill=wire.KillRun(reason="a test wants it"))
    killed = await scheduler.ended(hanging)
    assert killed.reason == common_pb2.RUN_END_REASON_TERMINATED
    assert killed.position == 1


async def test_a_runner_stays_warm_for_its_program_and_is_replaced_for_another(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    pids: list[float] = []
    for job, trainer in (("j1", "train.py:Walk"), ("j2", "train.py:Walk"), ("j3", "train.py:Other")):
        key = RunKey(StreamId("e1"), job, 1, 0)
        cluster.start(key, trainer=trainer, until=1)
        report = await scheduler.reported(key, 1)
        pids.append(report.metrics["pid"])
        scheduler.decide("a", key, wire.DECISION_CONTINUE, 1)
        assert (await scheduler.ended(key)).reason == common_pb2.RUN_END_REASON_UNTIL
    assert pids[0] == pids[1] != pids[2]


async def test_an_end_is_told_before_the_model_is_taken_apart_which_waits_for_no_other_run(cluster: Cluster) -> None:
    await cluster.agent()
    gate, gone = cluster.folder / "gate", cluster.folder / "gone"
    given = {"gate": str(gate), "gone": str(gone)}
    cluster.start(KEY, trainer="train.py:Heavy", hyperparameters=given, until=1, allowed=1, completes=True)
    assert (await cluster.scheduler.ended(KEY)).reason == common_pb2.RUN_END_REASON_UNTIL
    gate.touch()
    async with asyncio.timeout(HANG_SECONDS):
        while not gone.exists():  # noqa: ASYNC110 (no event: another process removes it)
            await asyncio.sleep(0.02)


async def test_evaluation_reports_once_and_changes_nothing(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY, until=3, allowed=3)
    trained = await scheduler.reported(KEY, 3)
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 3)
    snapshot = (await scheduler.ended(KEY)).snapshot
    evaluation = RunKey(StreamId("e1"), "j1", 2, 0)
    cluster.start(evaluation, mode=common_pb2.RUN_MODE_EVALUATE, snapshot=snapshot, input="part-3")
    report = await scheduler.reported(evaluation, 3)
    assert (report.part, report.examples, report.at_until) == ("part-3", 17, True)
    assert report.metrics["square"] == trained.metrics["square"]
    scheduler.decide("a", evaluation, wire.DECISION_CONTINUE, 3)
    ended = await scheduler.ended(evaluation)
    assert (ended.reason, ended.HasField("snapshot")) == (common_pb2.RUN_END_REASON_UNTIL, False)


async def test_a_finished_trainer_parks_and_completes(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    cluster.start(KEY, until=9, allowed=9, hyperparameters={"finish": 4})
    report = await scheduler.reported(KEY, 4)
    assert report.finished
    assert report.at_until
    scheduler.decide("a", KEY, wire.DECISION_CONTINUE, 4)
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.snapshot.position) == (common_pb2.RUN_END_REASON_UNTIL, 4)
    # Started again, the run has nothing to train and reports its position.
    again = RunKey(StreamId("e1"), "j1", 2, 0)
    cluster.start(again, until=9, allowed=9, snapshot=ended.snapshot, hyperparameters={"finish": 4})
    restated = await scheduler.reported(again, 4)
    assert (restated.finished, restated.at_until, dict(restated.metrics)) == (True, True, {})
    scheduler.decide("a", again, wire.DECISION_CONTINUE, 4)
    assert (await scheduler.ended(again)).reason == common_pb2.RUN_END_REASON_UNTIL


async def test_suspend_on_one_agent_and_resume_on_another_is_bit_identical(cluster: Cluster) -> None:
    await cluster.agent("a")
    await cluster.agent("b")
    scheduler = cluster.scheduler
    straight = RunKey(StreamId("e1"), "whole", 1, 0)
    cluster.start(straight, until=8, allowed=8)
    cluster.start(KEY, node="b", allowed=3)
    await scheduler.reported(KEY, 3)
    scheduler.decide("b", KEY, wire.DECISION_SUSPEND, 3)
    ended = await scheduler.ended(KEY)
    cluster.store.blobs.pop(ended.snapshot.sha256, None)
    scheduler.decide("a", straight, wire.DECISION_CONTINUE, (await scheduler.reported(straight, 8)).position)
    await scheduler.ended(straight)
    second = RunKey(StreamId("e1"), "j1", 2, 0)
    # The first peer does not exist; the second one has the snapshot.
    peers = ["127.0.0.1:9", cluster.agents["b"].address]
    cluster.start(second, until=8, allowed=8, snapshot=ended.snapshot, snapshot_peers=peers)
    await scheduler.reported(second, 8)
    expected = {r.position: (r.metrics["x"], r.metrics["square"]) for r in scheduler.reports(straight)}
    found = {r.position: (r.metrics["x"], r.metrics["square"]) for key in (KEY, second) for r in scheduler.reports(key)}
    assert found == expected
    assert not any(math.isnan(x) for x, _ in found.values())


async def test_thread_counts_and_environment_reach_the_process(cluster: Cluster) -> None:
    await cluster.agent()
    cluster.start(KEY, environment={"OMP_NUM_THREADS": "3"})
    assert (await cluster.scheduler.reported(KEY, 1)).metrics["threads"] == 3.0
