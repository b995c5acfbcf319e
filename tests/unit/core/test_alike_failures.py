"""Tests of experiments whose first jobs all fail from the same cause: they pause once, and continue when a person resumes them."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import CreateJob, ExperimentChange, ExperimentState, JobState, RunEndReason, StreamId
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core import Core
from hopyard_engine.core.events import Ended, Operated, TimerElapsed
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.timers import BackoffTimer, timer_of
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.reasons import said
from tests.simulation import dump
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick


def created(count: int, capacity: int = 2, **terms: object) -> Rig:
    rig = Rig(**{"capacity": capacity, "max_failures": 3, "jobs": 8, **terms})  # type: ignore[arg-type]
    for _ in range(count):
        rig.create()
    return rig


def fail(rig: Rig, name: str, cause: str = "one", *, user_code: bool = True, slot: str = "n1/0") -> None:
    """End all backoffs, start a job, and let its run fail without a report."""
    rig.now += 40.0
    for ticket in [ticket for ticket in rig.stream.timers if isinstance(timer_of(ticket), BackoffTimer)]:
        rig.feed(TimerElapsed(rig.now, StreamId("x"), ticket))
    rig.start(name, slot)
    reason = RunEndReason.FAILED if user_code else RunEndReason.LOST
    body = Ended(reason, 0, user_code=user_code, cause=said(f"ValueError: {cause}"), fingerprint=cause)
    rig.say(rig.key(name), body)


def resume(rig: Rig) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))


def founder(rig: Rig) -> Experiment:
    return rig.stream.founder


def paused(rig: Rig) -> bool:
    reason = founder(rig).reason
    if founder(rig).state is ExperimentState.RUNNING:
        return False
    assert reason is not None
    assert reason.code is ReasonCode.JOBS_FAIL_ALIKE
    return True


def replayed(rig: Rig) -> None:
    """Check that the journal leads to the same state, also through its written form."""
    again = Core()
    for event in rig.journal:
        again.handle(decode(kind_of(event), encode(event)))
    dump.compare(rig.stream, again.streams[StreamId("x")])


def test_twice_as_many_jobs_as_slots_pause_the_experiment_with_one_reason() -> None:
    rig = created(6)
    for name in ("1", "2", "3"):
        fail(rig, name)
        assert not paused(rig)
    fail(rig, "4")
    assert founder(rig).state is ExperimentState.PAUSED
    assert str(founder(rig).reason) == (
        "4 runs of 4 jobs failed from the same cause, and no job has reported: ValueError: one; "
        "see hopyard logs x --job 1; after a change of the code start it anew with hopyard run, "
        "after any other remedy continue it with hopyard resume x"
    )
    assert [call.change for call in rig.called(ExperimentChange)] == ["paused"]
    replayed(rig)


def test_on_one_slot_three_failures_are_needed() -> None:
    rig = created(4, capacity=1)
    for name in ("1", "2"):
        fail(rig, name)
    assert not paused(rig)
    fail(rig, "3")
    assert paused(rig)


def test_fewer_jobs_fail_as_often_together() -> None:
    rig = created(2, jobs=2)
    for name in ("1", "2", "1"):
        fail(rig, name)
        assert not paused(rig)
    fail(rig, "2")
    assert paused(rig)


def test_repeated_failures_of_one_of_several_jobs_pause_nothing() -> None:
    rig = created(4)
    for _ in range(4):
        fail(rig, "1")
    assert not paused(rig)
    assert rig.job("1").state is JobState.FAILED
    fail(rig, "2")
    fail(rig, "3")
    assert not paused(rig)
    fail(rig, "4")
    assert paused(rig)


def test_one_report_of_any_job_prevents_the_pause() -> None:
    rig = created(6)
    rig.start("6", "n1/1")
    for name in ("1", "2", "3"):
        fail(rig, name)
    rig.report(1, name="6")
    fail(rig, "4")
    fail(rig, "5")
    assert not paused(rig)
    replayed(rig)


def test_other_causes_do_not_count_and_do_not_prevent_the_pause() -> None:
    rig = created(6)
    for name, cause in (("1", "one"), ("2", "two"), ("3", "one"), ("4", "one"), ("5", "")):
        fail(rig, name, cause)
    assert not paused(rig)
    fail(rig, "6")
    assert paused(rig)


def test_lost_runs_do_not_count() -> None:
    rig = created(6)
    for name in ("1", "2", "3", "4", "5"):
        fail(rig, name, user_code=False)
    assert not paused(rig)


def test_failures_without_a_fingerprint_as_in_earlier_journals_pause_nothing() -> None:
    rig = created(6)
    for name in ("1", "2", "3", "4", "5", "6"):
        fail(rig, name, "")
    assert not paused(rig)


def test_an_experiment_all_of_whose_jobs_have_failed_for_good_ends() -> None:
    rig = created(4, jobs=4, max_failures=0)
    for name in ("1", "2", "3", "4"):
        fail(rig, name)
    assert {job.state for job in rig.stream.jobs.values()} == {JobState.FAILED}
    assert founder(rig).state is not ExperimentState.PAUSED


def test_an_experiment_that_is_open_for_requests_does_not_pause() -> None:
    rig = created(6, idle=60.0)
    for name in ("1", "2", "3", "4", "5"):
        fail(rig, name)
    assert not paused(rig)


def test_a_resume_counts_from_zero_and_the_same_cause_pauses_no_more() -> None:
    rig = created(6)
    for name in ("1", "2", "1", "3"):
        fail(rig, name)
    fail(rig, "4")
    assert paused(rig)
    assert rig.job("1").failures == 2
    resume(rig)
    assert founder(rig).state is ExperimentState.RUNNING
    assert {job.failures for job in rig.stream.jobs.values()} == {0}
    assert len(rig.stream.idle) == 6  # Nothing waits for the end of a backoff.
    for name in ("1", "2", "3", "4", "5", "6"):
        fail(rig, name)
    assert not paused(rig)
    replayed(rig)


def test_another_cause_after_a_resume_pauses_again() -> None:
    rig = created(6)
    for name in ("1", "2", "3", "4"):
        fail(rig, name)
    resume(rig)
    for name in ("1", "2", "3"):
        fail(rig, name, "two")
        assert not paused(rig)
    fail(rig, "4", "two")
    assert paused(rig)


def test_a_gang_counts_as_one_run_of_those_that_fit() -> None:
    rig = created(4, capacity=4)
    for name in ("1", "2", "3"):
        rig.start(name, "n1/0", "n1/1")
        cause = said("ValueError: one")
        rig.say(rig.key(name, rank=1), Ended(RunEndReason.FAILED, 0, user_code=True, cause=cause, fingerprint="one"))
        rig.say(rig.key(name), Ended(RunEndReason.LOST, 0, cause=said("killed")))
        assert not paused(rig)
    fail(rig, "4")
    assert not paused(rig)  # Four slots have room for four runs of one slot.
    rig.command(CreateJob("5", {"lr": 0.1}))
    rig.start("5", "n1/0", "n1/1")
    rig.say(rig.key("5"), Ended(RunEndReason.FAILED, 0, user_code=True, cause=said("no"), fingerprint="one"))
    rig.say(rig.key("5", rank=1), Ended(RunEndReason.LOST, 0, cause=said("killed")))
    assert paused(rig)
