"""Tests of a group whose experiments share training: what a job takes over, what a stopped experiment leaves, and billing."""

from __future__ import annotations

from typing import Any

import pytest

from hopyard.policy.vocabulary import (
    AmendRun,
    AnswerJob,
    BillRun,
    CreateJob,
    DecisionKind,
    ExperimentId,
    ExperimentState,
    JobState,
    KeepSnapshots,
    Report,
    RunEndReason,
    StartJob,
    StreamId,
    TerminateJob,
)
from hopyard_engine.core.effects import Decide, ForgetSnapshot, JobChanged, OrdersGiven, ReportAccepted, Start
from hopyard_engine.core.events import Amended, ExperimentJoined, Operated, Reports, SnapshotShipped, Updated
from hopyard_engine.core.types import EarlierTrial
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick

GIVEN = {"lr": 0.1}


def group(plan: str = "p", slots: int = 2, earlier: tuple[EarlierTrial, ...] = (), **terms: Any) -> Rig:
    """Return a core with job 1 of x and job 2 of y, which have the same training if the plans are equal."""
    rig = Rig(plan="p", capacity=slots)
    rig.feed(ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings(plan=plan, **terms), earlier=earlier))
    rig.command(CreateJob("1", GIVEN, "x"))
    rig.command(CreateJob("2", GIVEN, "y"))
    return rig


def train(rig: Rig, until: int, name: str = "1") -> None:
    """Train a job from 0 to `until` with a snapshot there, which is not uploaded yet."""
    rig.start(name, until=10, allowed=10, snapshot_at=(until,))
    for position in range(1, until + 1):
        rig.now += 1
        rig.report(position, position / 10, name, seconds=1.0)
    rig.taken(until, name)


def standing(rig: Rig) -> list[ExperimentState]:
    return [experiment.state for experiment in rig.stream.experiments.values()]


def stop(rig: Rig, experiment: str) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), "stop", ExperimentId(experiment)))


def test_who_goes_on_from_anothers_snapshot_has_it_and_the_results_as_its_own() -> None:
    rig = group()
    train(rig, 4)
    effects = rig.start("2", "n1/1", from_snapshot=("1", 4))
    assert [p.position for p in rig.stream.curve(rig.job("2"))] == [1, 2, 3, 4]
    assert rig.job("2").origin is None
    assert rig.run("2").source is None  # It has loaded the snapshot.
    assert rig.stream.experiments[ExperimentId("y")].best == ("2", 4, 0.4)
    told = [e for e in effects if isinstance(e, ReportAccepted)]
    assert [(e.experiment, e.job, e.report.position) for e in told] == [("y", "2", p) for p in range(1, 5)]
    starts = [e.body for e in effects if hasattr(e, "body") and isinstance(e.body, Start)]
    assert [start.snapshot for start in starts] == [snapshot(4)]


def test_a_failed_upload_changes_the_row_of_the_jobs_own_experiment() -> None:
    rig = group()
    train(rig, 4)
    rig.start("2", "n1/1", from_snapshot=("1", 4))
    (order,) = rig.core.orders("n1")
    effects = rig.feed(
        SnapshotShipped(rig.now, StreamId("x"), "n1", order.number, "2", 4, order.sha256, "the disk is full")
    )
    assert [e for e in effects if isinstance(e, JobChanged)] == [JobChanged(ExperimentId("y"), "2")]


def test_its_copy_comes_to_the_store_whatever_becomes_of_the_other_one() -> None:
    rig = group()
    train(rig, 4)
    effects = rig.start("2", "n1/1", from_snapshot=("1", 4))
    assert [e.node for e in effects if isinstance(e, OrdersGiven)] == ["n1"]
    (order,) = rig.core.orders("n1")
    rig.feed(SnapshotShipped(rig.now, StreamId("x"), "n1", order.number, "2", 4, order.sha256))
    entry = rig.stream.snapshots.get("2", 4)
    assert entry is not None
    assert entry.stored


def test_an_answer_from_anothers_results_is_judged_by_its_own_target() -> None:
    rig = group(target=0.4)
    train(rig, 5)
    rig.command(AnswerJob("2", "1", 3, completes=False))
    assert standing(rig) == [ExperimentState.RUNNING, ExperimentState.RUNNING]
    rig.command(AnswerJob("2", "1", 5, completes=False))
    assert standing(rig) == [ExperimentState.RUNNING, ExperimentState.COMPLETED]
    assert "reached the target 0.4" in str(rig.stream.experiments[ExperimentId("y")].reason)


def test_a_completed_answer_has_the_snapshot_of_its_end() -> None:
    rig = group(max_position=4)
    train(rig, 4)
    rig.command(AnswerJob("2", "1", 4))
    assert (rig.job("2").state, rig.job("2").position) == (JobState.COMPLETED, 4)
    assert rig.stream.snapshots.positions("2") == [4]


@pytest.mark.parametrize(("plan", "kind"), [("p", DecisionKind.SUSPEND), ("q", DecisionKind.TERMINATE)])
def test_a_stopped_run_is_saved_only_for_those_who_train_alike(plan: str, kind: DecisionKind) -> None:
    rig = group(plan)
    train(rig, 4)
    stop(rig, "x")
    assert [body.kind for body in rig.sent(Decide) if isinstance(body, Decide)] == [kind]


def test_what_a_stopped_experiment_has_saved_is_there_until_nobody_trains_alike() -> None:
    rig = group()
    train(rig, 4)
    stop(rig, "x")
    rig.ended(RunEndReason.SUSPENDED, 6, snapshot(6))
    rig.stored(4)
    rig.stored(6)
    assert rig.job("1").state is JobState.TERMINATED
    assert rig.stream.experiments[ExperimentId("x")].state is ExperimentState.STOPPED
    assert rig.stream.snapshots.positions("1") == [4, 6]
    rig.start("2", "n1/1", from_snapshot=("1", 6))
    assert rig.run("2").start == 6
    stop(rig, "y")
    rig.ended(RunEndReason.TERMINATED, 6, name="2")
    assert rig.stream.snapshots.positions("1") == [6]  # The result of x.
    assert [e.sha256 for e in rig.of(ForgetSnapshot)] == ["s4"]


def test_its_policy_may_let_it_go_before() -> None:
    rig = group()
    train(rig, 4)
    stop(rig, "x")
    rig.ended(RunEndReason.SUSPENDED, 6, snapshot(6))
    rig.command(TerminateJob("1"))
    assert rig.stream.snapshots.positions("1") == [6]


def test_its_policy_says_what_of_it_others_may_start_from() -> None:
    """Check with job 3 as the best job of x, so that no snapshot of job 1 is needed as the result."""
    rig = group()
    rig.command(CreateJob("3", GIVEN, "x"))
    rig.start("3", "n1/1")
    rig.report(1, 0.95, "3")
    rig.start("1", until=10, allowed=10, snapshot_at=(2, 4))
    for position in range(1, 6):
        rig.report(position, 0.9 - position / 10)
        if position in (2, 4):
            rig.taken(position)
            rig.stored(position)
    stop(rig, "x")
    rig.ended(RunEndReason.SUSPENDED, 6, snapshot(6))
    rig.stored(6)
    rig.ended(RunEndReason.SUSPENDED, 2, name="3")
    assert rig.stream.snapshots.positions("1") == [2, 4, 6]
    rig.command(KeepSnapshots("1", (4,)))
    assert rig.stream.snapshots.positions("1") == [4]
    rig.command(KeepSnapshots("1"))
    assert rig.stream.snapshots.positions("1") == []
    assert rig.of(ForgetSnapshot)


def test_what_the_policy_lets_go_of_a_live_job_goes_but_for_what_the_job_retains() -> None:
    rig = group()
    train(rig, 2)
    rig.command(AmendRun("1", "t", None, (4,)))
    rig.say(rig.key("1"), Amended("t", True, 2))
    rig.report(3, 0.3)
    rig.command(KeepSnapshots("1"))
    assert rig.stream.snapshots.positions("1") == [2]  # Its newest.
    rig.command(AmendRun("1", "u", None, (5,)))
    rig.say(rig.key("1"), Amended("u", True, 3))
    for position in (4, 5, 6):
        rig.report(position, 0.4)
        rig.taken(position, "1")
        rig.stored(position, "1")
    assert rig.stream.snapshots.positions("1") == [5, 6]  # What the policy requested since.


def test_a_job_that_goes_on_after_its_end_is_as_if_nothing_had_been_said() -> None:
    rig = group(max_position=4)
    train(rig, 4)
    rig.command(AnswerJob("2", "1", 4))
    rig.command(KeepSnapshots("2", (1,)))
    rig.feed(Updated(rig.now, StreamId("x"), "r", max_position=8, experiment=ExperimentId("y")))
    assert rig.job("2").kept is None


def test_a_run_that_never_comes_to_a_boundary_is_killed_as_any_stopped_one() -> None:
    rig = group()
    train(rig, 4)
    stop(rig, "x")
    assert rig.stream.timers["core/kill/1.1"] == rig.now + rig.stream.settings.kill_after


def test_who_joins_brings_what_earlier_experiments_have_trained() -> None:
    earlier = EarlierTrial("old/1", {"lr": 0.5}, (Report(1, {"score": 0.7}),), None, (snapshot(1, "old"),))
    rig = group(earlier=(earlier,))
    assert rig.stream.earlier["old/1"].experiment == "y"
    assert rig.stream.snapshots.holds("old")
    rig.command(StartJob("2", ("n1/0",), from_snapshot=("old/1", 1)))
    assert rig.stream.experiments[ExperimentId("y")].best == ("2", 1, 0.7)
    assert rig.stream.experiments[ExperimentId("x")].best is None


def paid(rig: Rig) -> tuple[float, float]:
    return rig.stream.experiments[ExperimentId("x")].slot_seconds, rig.stream.experiments[
        ExperimentId("y")
    ].slot_seconds


def test_a_run_is_its_experiments_from_its_start_to_its_end() -> None:
    rig = group()
    train(rig, 3, "2")
    rig.now += 2.5
    rig.ended(RunEndReason.LOST, 3, name="2")
    assert paid(rig) == pytest.approx((0, 5.5), abs=0.01)


def test_those_who_want_what_is_trained_have_equal_parts_of_it_up_to_there() -> None:
    """Check with two seconds for x alone, three shared with y up to 5, and the rest for x."""
    rig = group()
    train(rig, 2)
    rig.command(BillRun("1", (("x", 8), ("y", 5))))
    batch = tuple(Report(p, {"score": 0.1}, seconds=1.0) for p in range(3, 9))
    rig.now += 6
    rig.say(rig.key("1"), Reports(batch))
    assert paid(rig) == pytest.approx((2 + 1.5 + 3, 1.5), abs=0.01)


def test_a_gang_costs_as_many_slots_as_it_has() -> None:
    rig = group()
    rig.command(StartJob("1", ("n1/0", "n1/1"), allowed=10))
    rig.now += 3
    rig.report(1, seconds=0.0)
    assert paid(rig) == pytest.approx((6, 0), abs=0.01)


def test_only_experiments_of_the_group_pay() -> None:
    rig = group()
    train(rig, 2)
    rig.command(BillRun("1", (("z", 5),)))
    assert "there is no experiment 'z' in this group; there are: x, y" in str(rig.stream.conversation.refusal)
    rig.now += 1
    rig.report(3, seconds=1.0)
    assert paid(rig) == pytest.approx((3, 0), abs=0.01)
