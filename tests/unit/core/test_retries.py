"""Failed jobs start again when a person retries them, also in an experiment that has ended."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import (
    AllocateJobs,
    Call,
    Command,
    Decision,
    ExperimentChange,
    ExperimentId,
    ExperimentState,
    IterationFinish,
    JobState,
    RunEndReason,
    StartJob,
    StreamId,
)
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core import Core
from hopyard_engine.core.effects import Refused
from hopyard_engine.core.events import JobsRetried, Started, StreamDeleted, StreamEvent
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.simulation import dump
from tests.unit.core.rig import Rig, snapshot

pytestmark = pytest.mark.quick

X = StreamId("x")


def retry(rig: Rig, *jobs: str, request: str = "r") -> list[Refused]:
    rig.feed(JobsRetried(rig.now, X, request, jobs, ExperimentId("x")))
    return rig.of(Refused)


def fail(rig: Rig, position: int = 0) -> None:
    """Create a job, and let it fail at a position, with a snapshot there if the position is not 0."""
    name = rig.create()
    rig.start(name, "n1/0")
    if position:
        rig.report(position, name=name)
        rig.taken(position, name)
        rig.stored(position, name)
    rig.ended(RunEndReason.FAILED, position, name=name)
    assert rig.job(name).state is JobState.FAILED


def test_a_failed_job_begins_again_without_a_snapshot() -> None:
    rig = Rig(jobs=2)
    fail(rig)
    rig.calls.clear()
    assert retry(rig, "1") == []
    job = rig.job()
    assert (job.state, job.position, job.failures) == (JobState.PENDING, 0, 0)
    assert job.reason is not None
    assert job.reason.code is ReasonCode.RETRIED_BY_PERSON
    assert rig.called(ExperimentChange) == [ExperimentChange("extended", ExperimentId("x"))]
    assert rig.called(AllocateJobs)
    rig.start("1", "n1/0")
    assert (rig.job().state, rig.run().attempt) == (JobState.RUNNING, 2)


@pytest.mark.parametrize("keeps", [True, False])
def test_it_continues_from_its_newest_snapshot_if_failed_jobs_keep_theirs(keeps: bool) -> None:
    rig = Rig(jobs=3, keeps_failed=keeps)
    best = rig.create()
    rig.start(best, "n1/1")
    rig.report(1, 0.9, best)
    fail(rig, 3)
    assert retry(rig, "2") == []
    job = rig.job("2")
    expected = (JobState.SUSPENDED, 3) if keeps else (JobState.PENDING, 0)
    assert (job.state, job.position, job.high_water) == (*expected, 3)


def test_an_experiment_whose_jobs_all_failed_continues() -> None:
    rig = Rig(jobs=1)
    fail(rig)
    assert rig.stream.state is ExperimentState.FAILED
    rig.script = starts
    assert retry(rig, "1") == []
    assert (rig.stream.state, rig.job().state) == (ExperimentState.RUNNING, JobState.STARTING)
    rig.say(rig.key(), Started(0))
    rig.report(10, at_until=True)
    rig.ended(RunEndReason.UNTIL, 10, snapshot(10))
    rig.stored(10)
    assert (rig.stream.state, rig.job().state) == (ExperimentState.COMPLETED, JobState.COMPLETED)


def starts(call: Call) -> tuple[Decision | None, list[Command]]:
    """A policy that starts job 1 when slots are idle."""
    decision = Decision.proceed() if isinstance(call, IterationFinish) else None
    return decision, [StartJob("1", ("n1/0",), until=10)] if isinstance(call, AllocateJobs) else []


def test_a_repeated_refused_request_is_refused_again_until_it_is_possible() -> None:
    rig = Rig(jobs=2)
    name = rig.create()
    rig.start(name, "n1/0")
    assert len(retry(rig, name)) == 1
    assert len(retry(rig, name)) == 1  # The client repeats its call, because the connection was lost.
    rig.ended(RunEndReason.FAILED, 0, name=name)
    assert retry(rig, name) == []
    assert rig.job().state is JobState.PENDING
    rig.start(name, "n1/0")
    rig.ended(RunEndReason.FAILED, 0, name=name)
    assert retry(rig, name) == []
    assert rig.job().state is JobState.FAILED


def test_a_retried_job_may_fail_as_often_as_a_new_one() -> None:
    rig = Rig(jobs=2, max_failures=1)
    name = rig.create()
    for _ in range(2):
        rig.start(name, "n1/0")
        rig.ended(RunEndReason.FAILED, 0)
    assert rig.job().state is JobState.FAILED
    retry(rig, name)
    rig.start(name, "n1/0")
    rig.ended(RunEndReason.FAILED, 0)
    assert (rig.job().state, rig.job().failures) == (JobState.PENDING, 1)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ("2", "refused to retry: job '2' is PENDING; only failed jobs are retried"),
        ("9", "refused to retry: there is no job '9'"),
    ],
)
def test_one_job_that_cannot_be_retried_keeps_all_as_they_are(job: str, why: str) -> None:
    rig = Rig(jobs=3)
    fail(rig)
    rig.create()
    (refused,) = retry(rig, "1", job)
    assert str(refused.reason) == why
    assert rig.job("1").state is JobState.FAILED


def test_a_repeated_retry_has_no_effect() -> None:
    rig = Rig(jobs=2)
    fail(rig)
    retry(rig, "1")
    rig.start("1", "n1/0")
    rig.ended(RunEndReason.FAILED, 0)
    length = len(rig.journal)
    retry(rig, "1")
    assert (len(rig.journal), rig.job().state) == (length, JobState.FAILED)


def test_a_retry_is_restored_from_the_journal() -> None:
    rig = Rig(jobs=1, keeps_failed=True)
    fail(rig, 3)
    retry(rig, "1")
    core = Core()
    for event in rig.journal:
        restored = decode(kind_of(event), encode(event))
        assert isinstance(restored, StreamEvent)
        core.restore(restored)
    dump.compare(rig.stream, core.streams[X])


def test_only_an_ended_stream_is_deleted() -> None:
    rig = Rig(jobs=1)
    event = StreamDeleted(rig.now, X, (ExperimentId("x"),), request="r")
    assert rig.core.handle(event) == []
    fail(rig)
    rig.core.handle(event)
    assert rig.core.find(ExperimentId("x")) is None
    assert rig.core.cluster.open_deletions == {X: event}
