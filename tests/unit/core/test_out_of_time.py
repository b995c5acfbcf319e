"""Tests of an experiment whose time is over, and of its continuation when it gets more."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import (
    DecisionKind,
    ExperimentChange,
    ExperimentState,
    JobState,
    Predict,
    PredictionReady,
    RunEnd,
    RunEndReason,
    StreamId,
    SuspendJob,
    TerminateJob,
    TimerFired,
    WakeAt,
)
from hopyard_engine.core.effects import Decide, Kill, SetTimer
from hopyard_engine.core.events import Answered, Operated, TimerElapsed, Updated
from hopyard_engine.core.state.timers import POLICY, BackoffTimer
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


def over(rig: Rig) -> None:
    """Let the time of the experiment end."""
    rig.now = rig.stream.timers["core/end/x"]
    rig.feed(TimerElapsed(rig.now, StreamId("x"), "core/end/x"))


def more(rig: Rig) -> None:
    """Extend the time of the experiment, one hour later."""
    rig.now += 3600
    rig.feed(Updated(rig.now, StreamId("x"), f"u{rig.now}", more_seconds=60.0))


def searching() -> Rig:
    """Return a core in which job 1 trains, 2 is suspended at 3, 3 was terminated at 1, and 4 has never run."""
    rig = Rig(max_seconds=100.0)
    for _ in range(4):
        rig.create()
    rig.start("2", "n1/1")
    rig.report(3, name="2")
    rig.command(SuspendJob("2"))
    rig.ended(RunEndReason.SUSPENDED, 3, snapshot(3, "two"), name="2")
    rig.stored(3, "2", sha256="two")
    rig.start("3", "n1/1")
    rig.report(1, name="3")
    rig.command(TerminateJob("3"))
    rig.ended(RunEndReason.TERMINATED, 1, name="3")
    rig.start("1")
    rig.report(1)
    return rig


def states(rig: Rig) -> list[JobState]:
    return [job.state for job in rig.stream.jobs.values()]


def test_jobs_that_the_end_of_the_time_interrupts_go_on_from_their_last_snapshots_when_there_is_more() -> None:
    rig = searching()
    over(rig)
    assert [body.kind for body in rig.sent() if isinstance(body, Decide)] == [DecisionKind.SUSPEND]
    rig.report(2)
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    assert rig.stream.state is ExperimentState.ENDING, "until its state is where it survives its node"
    rig.stored(2)
    assert (rig.stream.state, str(rig.stream.reason)) == (ExperimentState.COMPLETED, "its time of 100 s is over")
    assert states(rig) == [JobState.SUSPENDED, JobState.SUSPENDED, JobState.TERMINATED, JobState.PENDING]
    assert not list(rig.stream.idle)
    more(rig)
    assert str(rig.stream.state) == "ExperimentState.RUNNING"
    assert rig.stream.timers["core/end/x"] == rig.now + 60
    assert set(rig.stream.idle) == {"1", "2", "4"}
    rig.start("1")
    rig.start("2", "n1/1")
    assert (rig.run("1").start, rig.run("2").start) == (2, 3)


def test_its_policy_hears_of_every_run_before_it_is_over() -> None:
    rig = searching()
    over(rig)
    rig.hold = True
    rig.kept(2)
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    assert rig.stream.snapshots.settled
    assert rig.stream.state is ExperimentState.ENDING
    rig.hold = False
    while rig.held:
        rig.feed(rig.answer(rig.held.popleft()))
    assert [(end.job, end.reason) for end in rig.called(RunEnd)][-1] == ("1", RunEndReason.SUSPENDED)
    assert str(rig.stream.state) == "ExperimentState.COMPLETED"
    more(rig)
    assert rig.called(ExperimentChange)[-1].change == "extended"


def test_a_run_that_reaches_no_boundary_is_ended_all_the_same_and_its_job_goes_back() -> None:
    rig = searching()
    rig.kept(2)
    rig.report(3)
    over(rig)
    timer = "core/kill/1.1"
    assert rig.stream.timers[timer] == rig.now + rig.stream.settings.kill_after
    rig.now = rig.stream.timers[timer]
    rig.feed(TimerElapsed(rig.now, StreamId("x"), timer))
    assert len(rig.sent(Kill)) == 1
    rig.ended(RunEndReason.TERMINATED, 3)
    assert rig.stream.state is ExperimentState.COMPLETED
    more(rig)
    rig.start("1")
    assert rig.run("1").start == 2


def test_a_run_that_is_being_terminated_already_stays_terminated() -> None:
    rig = searching()
    rig.command(TerminateJob("1"))
    due = rig.stream.timers["core/kill/1.1"]
    over(rig)
    assert rig.stream.timers["core/kill/1.1"] == due
    rig.ended(RunEndReason.TERMINATED, 1)
    more(rig)
    assert states(rig)[0] is JobState.TERMINATED


def test_a_job_that_waited_after_losses_waits_no_more_and_is_not_forgotten() -> None:
    rig = searching()
    for _ in range(2):
        rig.ended(RunEndReason.LOST, 1)
        if BackoffTimer("1").ticket not in rig.stream.timers:
            rig.start("1")
    assert "1" not in rig.stream.idle
    over(rig)
    assert rig.stream.state is ExperimentState.COMPLETED
    assert BackoffTimer("1").ticket not in rig.stream.timers
    more(rig)
    assert set(rig.stream.idle) == {"1", "2", "4"}


def test_what_its_policy_waits_for_is_answered_or_comes_later() -> None:
    rig = searching()
    rig.command(Predict("p1", "1"), WakeAt("later", rig.now + 1000))
    due = rig.stream.timers[POLICY + "later"]
    over(rig)
    rig.report(2)
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    rig.stored(2)
    ready = rig.called(PredictionReady)
    assert [(one.ticket, one.error) for one in ready] == [("p1", "job 1 is SUSPENDED by now")]
    assert rig.stream.state is ExperimentState.COMPLETED
    rig.feed(Answered(rig.now, StreamId("x"), POLICY + "p1", {}))
    assert len(rig.called(PredictionReady)) == 1
    more(rig)
    assert SetTimer(StreamId("x"), POLICY + "later", due) in rig.of(SetTimer)
    rig.feed(TimerElapsed(rig.now, StreamId("x"), POLICY + "later"))
    assert rig.called(TimerFired) == [TimerFired("later")]


def test_a_person_s_stop_ends_for_good_also_after_the_time_was_over_once() -> None:
    rig = searching()
    over(rig)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.stored(1)
    more(rig)
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.stream.state is ExperimentState.STOPPED
    assert set(states(rig)) == {JobState.TERMINATED}
    more(rig)
    assert set(states(rig)) == {JobState.TERMINATED}
