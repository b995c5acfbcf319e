"""Tests of generators that cannot answer: their experiment is paused, and its questions are repeated in order when it is resumed."""

from __future__ import annotations

import pytest

from hopyard.policy.vocabulary import CreateJob, ExperimentId, ExperimentState, JobState, RunEndReason, StreamId, WakeAt
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core import Core
from hopyard_engine.core.core import outstanding
from hopyard_engine.core.effects import AskOutside
from hopyard_engine.core.events import Answered, Operated, Updated
from hopyard_engine.core.handlers.commands import CREATE
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.simulation import dump
from tests.unit.core.rig import Rig, quiet, snapshot
from tests.unit.core.test_groups import Pair

pytestmark = pytest.mark.quick


def answer(rig: Rig, job: str, error: str = "") -> None:
    rig.feed(Answered(rig.now, StreamId("x"), CREATE + job, None if error else {"lr": 0.1}, error))


def operate(rig: Rig, action: str) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), action))  # type: ignore[arg-type]


def asked(rig: Rig) -> list[str]:
    """Return the jobs whose configurations the last event requested, in order."""
    return [effect.payload["job"] for effect in rig.of(AskOutside)]


@pytest.fixture
def failed() -> Rig:
    """Three jobs were requested, the second of them failed."""
    rig = Rig()
    for job in "123":
        rig.command(CreateJob(job))
    answer(rig, "1")
    answer(rig, "2", "it has run out of ideas")
    return rig


def test_a_failed_generator_pauses_its_experiment_and_keeps_its_questions(failed: Rig) -> None:
    assert failed.stream.state is ExperimentState.PAUSED
    reason = failed.stream.founder.reason
    assert reason is not None
    assert reason.code is ReasonCode.GENERATOR_FAILED
    assert str(reason) == "the generator failed: it has run out of ideas; after a remedy continue with hopyard resume x"
    assert [failed.job(job).state for job in "123"] == [JobState.PENDING, JobState.CREATING, JobState.CREATING]
    assert list(failed.stream.asks) == ["create/2", "create/3"]
    # A restarted scheduler does not ask: they wait for a person.
    assert [effect for effect in outstanding(failed.stream) if isinstance(effect, AskOutside)] == []


def test_when_the_experiment_is_resumed_its_questions_are_repeated_in_order(failed: Rig) -> None:
    operate(failed, "resume")
    assert asked(failed) == ["2", "3"]
    answer(failed, "2")
    answer(failed, "3")
    assert failed.stream.state is ExperimentState.RUNNING
    assert [failed.job(job).state for job in "123"] == [JobState.PENDING] * 3
    assert [call.job for call in failed.stream.founder.generator_calls if call.answered] == ["1", "2", "3"]
    operate(failed, "pause")
    operate(failed, "resume")
    assert asked(failed) == []


def test_a_generator_that_fails_again_pauses_its_experiment_again(failed: Rig) -> None:
    operate(failed, "resume")
    answer(failed, "2", "it has no ideas at all")
    assert failed.stream.state is ExperimentState.PAUSED
    assert "it has no ideas at all" in str(failed.stream.founder.reason)


def test_an_experiment_that_a_person_paused_says_so_until_it_is_resumed() -> None:
    rig = Rig()
    rig.command(CreateJob("1"))
    operate(rig, "pause")
    answer(rig, "1", "out of ideas")
    assert str(rig.stream.founder.reason) == "paused by a person"
    operate(rig, "resume")
    assert asked(rig) == ["1"]


def test_running_jobs_leave_at_their_next_boundary() -> None:
    rig = Rig()
    rig.create()
    rig.start("1")
    rig.command(CreateJob("2"))
    answer(rig, "2", "out of ideas")
    assert rig.stream.state is ExperimentState.PAUSING
    rig.report(1)
    rig.ended(RunEndReason.SUSPENDED, 1, snapshot(1))
    rig.stored(1)
    assert str(rig.stream.state) == "ExperimentState.PAUSED"
    operate(rig, "resume")
    assert asked(rig) == ["2"]


def test_a_stopped_experiment_asks_no_more(failed: Rig) -> None:
    operate(failed, "stop")
    assert failed.stream.state is ExperimentState.STOPPED
    assert failed.stream.asks == {}


def test_only_the_experiment_of_the_generator_is_paused_and_the_others_can_end() -> None:
    rig = Pair(jobs=1)
    rig.command(CreateJob("1", experiment="y"))
    rig.feed(Answered(rig.now, StreamId("x"), CREATE + "1", None, "out of ideas"))
    assert rig.y.state is ExperimentState.PAUSED
    assert rig.stream.founder.state is ExperimentState.RUNNING


def test_the_journal_leads_to_the_same_state(failed: Rig) -> None:
    operate(failed, "resume")
    answer(failed, "2")
    again = Core()
    for event in failed.journal:
        again.handle(decode(kind_of(event), encode(event)))
    dump.compare(failed.stream, again.streams[StreamId("x")])


def test_an_experiment_that_was_stopped_after_the_failure_and_extended_asks_and_waits(failed: Rig) -> None:
    operate(failed, "stop")
    failed.script = lambda call: (quiet(call)[0], [WakeAt("more", 1e9)])
    failed.feed(Updated(failed.now, StreamId("x"), "u", more_jobs=1))
    failed.command(CreateJob("4"))
    assert asked(failed) == ["4"]
    assert failed.stream.state is ExperimentState.RUNNING
    answer(failed, "4")
    assert failed.job("4").state is JobState.PENDING


def test_a_group_ends_although_a_stopped_experiment_has_a_failed_generator() -> None:
    rig = Pair(jobs=2)
    for job in "12":
        rig.command(CreateJob(job, experiment="y"))
    rig.feed(Operated(rig.now, StreamId("x"), "stop", ExperimentId("y")))
    rig.feed(Answered(rig.now, StreamId("x"), CREATE + "1", None, "out of ideas"))
    assert rig.stream.asks == {}  # Nobody answers the second one.


def test_while_it_has_failed_a_new_question_waits_with_the_others(failed: Rig) -> None:
    failed.command(CreateJob("4"))
    assert asked(failed) == []
    operate(failed, "resume")
    assert asked(failed) == ["2", "3", "4"]
