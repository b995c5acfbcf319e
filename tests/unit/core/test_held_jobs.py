"""Tests of jobs that a person paused: they stay HELD whatever the policy commands, and their experiment continues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hopyard.policy.vocabulary import (
    AllocateJobs,
    AnswerJob,
    CreateJob,
    Decision,
    ExperimentState,
    JobState,
    RunEnd,
    RunEndReason,
    StartJob,
    StreamId,
    SuspendJob,
    TerminateJob,
)
from hopyard.policy.vocabulary.reasons import ReasonCode, explain
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Decide, Refused
from hopyard_engine.core.events import Answered, JobHeld, JobOperated, Operated, StreamEvent, TimerElapsed, Updated
from hopyard_engine.core.state.timers import BackoffTimer
from hopyard_engine.explain.waiting_reasons import WaitingReasons
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.simulation import dump
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick


@pytest.fixture
def rig() -> Rig:
    return Rig()


def hold(rig: Rig, job: str = "1") -> None:
    rig.feed(JobHeld(rig.now, StreamId("x"), job, True))


def let_go(rig: Rig, job: str = "1") -> None:
    rig.feed(JobHeld(rig.now, StreamId("x"), job, False))


def refusals(rig: Rig) -> list[str]:
    return [str(verdict.reason) for verdict in rig.stream.conversation.verdicts]


def why(rig: Rig, job: str = "1") -> str:
    return explain(WaitingReasons(rig.stream, rig.core.cluster, rig.now).job(rig.job(job)))


def whole(rig: Rig) -> str:
    return explain(WaitingReasons(rig.stream, rig.core.cluster, rig.now).experiment(rig.stream.founder))


def _only_paused(rig: Rig) -> bool:
    found = WaitingReasons(rig.stream, rig.core.cluster, rig.now).experiment(rig.stream.founder)
    return found is not None and found.code is ReasonCode.ONLY_PAUSED_JOBS


def test_a_running_job_saves_leaves_and_is_held(rig: Rig) -> None:
    rig.create()
    rig.start("1")
    rig.report(3)
    hold(rig)
    assert [body.kind.value for body in rig.sent(Decide)] == ["SUSPEND"]  # type: ignore[union-attr]
    assert rig.job().state is JobState.SUSPENDING
    assert why(rig) == "paused by a person: saving, leaving at its next boundary"
    rig.ended(RunEndReason.SUSPENDED, 3, snapshot(3))
    assert (rig.job().state, rig.job().position, list(rig.stream.idle)) == (JobState.HELD, 3, [])
    assert why(rig) == "paused by a person"
    assert rig.called(RunEnd)[-1].reason is RunEndReason.SUSPENDED
    let_go(rig)
    assert (rig.job().state, list(rig.stream.idle)) == (JobState.SUSPENDED, ["1"])
    rig.start("1")
    assert rig.run().start == 3


def test_the_policy_is_refused_whatever_it_wants_and_not_asked_again_at_once(rig: Rig) -> None:
    rig.create()
    rig.create()
    rig.start("2", "n1/1")
    rig.report(5, name="2")
    hold(rig)
    before = len(rig.calls)
    rig.command(StartJob("1", ("n1/0",)), TerminateJob("1"), AnswerJob("1", "2", 5))
    assert refusals(rig) == ["job '1' is paused by a person"] * 3
    assert len(rig.calls) == before + 1
    assert rig.job().state is JobState.HELD


def test_a_decision_of_the_policy_does_not_keep_a_paused_job_on_its_slot(rig: Rig) -> None:
    rig.create()
    rig.start("1")
    rig.hold = True
    rig.report(1)
    rig.feed(rig.answer(rig.held.popleft()))
    hold(rig)
    rig.hold = False
    answered = rig.answer(rig.held.popleft())
    assert answered.answer.decision == Decision.proceed()
    rig.feed(answered)
    assert rig.job().state is JobState.SUSPENDING
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert rig.job().state is JobState.HELD


@pytest.mark.parametrize("times", [1, 2])
def test_each_twice_is_as_good_as_once(rig: Rig, times: int) -> None:
    rig.create()
    for _ in range(times):
        hold(rig)
    assert rig.job().state is JobState.HELD
    for _ in range(times):
        let_go(rig)
    assert rig.job().state is JobState.PENDING
    assert rig.of(Refused) == []


def test_a_job_that_is_being_created_is_held_when_it_has_its_configuration(rig: Rig) -> None:
    rig.command(CreateJob("1"))
    hold(rig)
    assert rig.job().state is JobState.CREATING
    rig.feed(Answered(rig.now, StreamId("x"), "create/1", {"lr": 0.1}))
    assert (rig.job().state, rig.job().hyperparameters) == (JobState.HELD, {"lr": 0.1})
    let_go(rig)
    assert rig.job().state is JobState.PENDING


def test_one_that_is_let_go_before_it_has_left_goes_on_as_a_suspended_job(rig: Rig) -> None:
    rig.create()
    rig.start("1")
    hold(rig)
    let_go(rig)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert rig.job().state is JobState.SUSPENDED


def test_an_experiment_whose_only_open_jobs_are_held_says_so_and_does_not_end() -> None:
    rig = Rig(jobs=2)
    rig.demand = lambda: 0
    rig.create()
    rig.create()
    hold(rig)
    hold(rig, "2")
    rig.feed(TimerElapsed(1e9, StreamId("x"), "policy/keep"))
    assert rig.stream.state is ExperimentState.RUNNING
    assert whole(rig) == "nothing is left to train but jobs 1 and 2, which are paused by a person: resume or stop them"
    assert _only_paused(rig)  # By this, `hopyard wait` detects that it would never return.
    rig.feed(JobOperated(rig.now, StreamId("x"), TerminateJob("1")))
    assert rig.job().state is JobState.TERMINATED
    assert whole(rig) == "nothing is left to train but job 2, which is paused by a person: resume or stop it"
    rig.feed(JobOperated(rig.now, StreamId("x"), TerminateJob("2")))
    assert (str(rig.stream.state), str(rig.stream.reason)) == ("ExperimentState.COMPLETED", "all jobs ended")


def test_stopping_the_experiment_ends_it(rig: Rig) -> None:
    rig.create()
    hold(rig)
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert (rig.job().state, rig.job().held, rig.stream.state) == (JobState.TERMINATED, False, ExperimentState.STOPPED)


def test_pausing_and_resuming_the_experiment_leaves_it_held(rig: Rig) -> None:
    rig.create()
    hold(rig)
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert rig.job().state is JobState.HELD
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    let_go(rig)
    assert (rig.job().state, list(rig.stream.idle)) == (JobState.PENDING, [])
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert list(rig.stream.idle) == ["1"]


def test_a_held_job_that_loses_its_snapshot_waits_with_what_is_left(rig: Rig) -> None:
    rig.create()
    rig.start("1")
    hold(rig)
    rig.ended(RunEndReason.SUSPENDED, 3, snapshot(3))
    rig.expire("n1")
    assert (rig.job().state, rig.job().position) == (JobState.HELD, 0)
    let_go(rig)
    assert rig.job().state is JobState.PENDING


def test_a_wait_after_losses_that_ends_meanwhile_starts_nothing(rig: Rig) -> None:
    rig.create()
    for _ in range(2):
        rig.start("1")
        rig.ended(RunEndReason.LOST, 0)
    at = rig.stream.timers[BackoffTimer("1").ticket]
    hold(rig)
    rig.now = at
    rig.feed(TimerElapsed(at, StreamId("x"), BackoffTimer("1").ticket))
    assert (rig.job().state, list(rig.stream.idle)) == (JobState.HELD, [])
    let_go(rig)
    assert list(rig.stream.idle) == ["1"]


def test_a_held_winner_completes() -> None:
    rig = Rig(target=0.9)
    rig.create()
    rig.start("1")
    hold(rig)
    rig.report(2, 0.95)
    rig.ended(RunEndReason.SUSPENDED, 2, snapshot(2))
    rig.stored(2)
    assert (rig.job().state, rig.stream.state) == (JobState.COMPLETED, ExperimentState.COMPLETED)


def _end(rig: Rig) -> None:
    rig.feed(JobOperated(rig.now, StreamId("x"), TerminateJob("1")))


def _stop(rig: Rig) -> None:
    rig.start("1")
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))


@pytest.mark.parametrize(
    ("job", "prepare", "expected"),
    [
        ("9", _end, "there is no job '9'"),
        ("1", _end, "job '1' is TERMINATED"),
        ("1", _stop, "the experiment is ending"),
    ],
)
def test_what_cannot_be_paused_is_refused(rig: Rig, job: str, prepare: Callable[[Rig], None], expected: str) -> None:
    rig.create()
    prepare(rig)
    hold(rig, job)
    assert [str(note.reason) for note in rig.of(Refused)] == [f"refused to pause: {expected}"]
    let_go(rig, job)
    assert [str(note.reason) for note in rig.of(Refused)] == [f"refused to resume: {expected}"]


def test_a_policy_that_suspends_it_once_more_changes_nothing(rig: Rig) -> None:
    rig.create()
    rig.start("1")
    hold(rig)
    rig.command(SuspendJob("1"))
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    assert rig.job().state is JobState.HELD


def test_the_journal_leads_to_the_same_state(rig: Rig) -> None:
    rig.create()
    rig.create()
    rig.start("1")
    hold(rig)
    rig.ended(RunEndReason.SUSPENDED, 3, snapshot(3))
    hold(rig, "2")
    let_go(rig)
    rig.feed(Updated(rig.now, StreamId("x"), "u", concurrency=1, cleared=("slots",)))
    again = Core()
    for event in rig.journal:
        read = decode(kind_of(event), encode(event))
        assert isinstance(read, StreamEvent)
        again.restore(read)
    dump.compare(rig.stream, again.streams[StreamId("x")])


@pytest.mark.parametrize("person", ["pauses", "ends"])
def test_the_policy_is_asked_again_when_a_person_pauses_or_ends_a_job_without_a_run(rig: Rig, person: str) -> None:
    rig.create()
    rig.create()
    asked = len(rig.called(AllocateJobs))
    if person == "pauses":
        rig.feed(JobHeld(rig.now, StreamId("x"), "2", True))
    else:
        rig.feed(JobOperated(rig.now, StreamId("x"), TerminateJob("2")))
    assert len(rig.called(AllocateJobs)) == asked + 1


def test_a_policy_that_wants_no_slot_waits_for_the_held_job_alone() -> None:
    """Check with another job that its policy never continues, as at a rung."""
    rig = Rig(jobs=2)
    rig.demand = lambda: 0
    rig.create()
    rig.create()
    hold(rig)
    assert rig.job("2").state is JobState.PENDING
    assert whole(rig) == "nothing is left to train but job 1, which is paused by a person: resume or stop it"
    rig.demand = lambda: 1
    rig.command()
    assert not _only_paused(rig)
