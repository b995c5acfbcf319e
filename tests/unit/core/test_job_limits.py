"""Tests of jobs with their own end position: jobs of client requests and jobs that a policy creates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hopyard.policy.vocabulary import (
    ENDLESS,
    AnswerJob,
    Command,
    CreateJob,
    ExperimentId,
    ExperimentState,
    JobCreated,
    JobState,
    RequestMade,
    RunEndReason,
    StartJob,
    StreamId,
)
from hopyard_engine.core.effects import Effect, JobChanged, Record, Refused, Send
from hopyard_engine.core.events import ExperimentJoined, Operated, PolicyAnswered, Requested, Updated
from hopyard_engine.core.types import Settings
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick


class Serving(Rig):
    """An engine core with an experiment whose policy serves requests."""

    def command(self, *commands: Command) -> list[Effect]:
        """Give commands as `Rig.command` does, without a job for its request."""
        experiment = self.stream.founder
        serving, experiment.settings = experiment.settings, replace(experiment.settings, requests=False)
        try:
            return super().command(*commands)
        finally:
            experiment.settings = serving


def serving() -> Rig:
    """Return a core that serves requests, with an experiment of one job that trains up to 8."""
    return Serving(requests=True, max_position=8, jobs=1)


def ask(rig: Rig, position: int = 3, ticket: str = "a", lr: float = 0.5) -> None:
    rig.feed(Requested(rig.now, StreamId("x"), ticket, {"lr": lr}, position))


def asked(rig: Rig) -> dict[str, str]:
    """Return the job of each request, by ticket."""
    return {ticket: job for ticket, job in rig.stream.founder.requested.items() if job}


def test_a_request_makes_a_job_that_is_none_of_the_experiments() -> None:
    rig = serving()
    ask(rig)
    job = rig.job("1")
    assert (job.state, job.max_position, job.hyperparameters) == (JobState.PENDING, 3, {"lr": 0.5})
    assert rig.called(RequestMade) == [RequestMade("a", {"lr": 0.5}, 3, "1")]
    assert not rig.called(JobCreated)
    assert rig.of(JobChanged)
    assert rig.stream.jobs_left == 1
    rig.create()
    assert rig.stream.jobs_left == 0
    ask(rig, ticket="b")  # It does not count as one of the experiment's jobs.
    assert asked(rig) == {"a": "1", "b": "3"}


def test_a_repeated_request_is_none() -> None:
    rig = serving()
    ask(rig)
    ask(rig)
    assert not rig.effects
    assert list(rig.stream.jobs) == ["1"]


def test_experiments_of_a_group_do_not_know_each_others_requests() -> None:
    rig = serving()
    rig.feed(ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings(requests=True, max_position=8)))
    ask(rig)
    for _ in range(2):
        rig.feed(Requested(rig.now, StreamId("x"), "a", {"lr": 0.5}, 3, experiment=ExperimentId("y")))
    assert [(job.experiment.id, job.limit) for job in rig.stream.jobs.values()] == [("x", 3), ("y", 3)]
    assert (asked(rig), rig.stream.experiments[ExperimentId("y")].requested) == ({"a": "1"}, {"a": "2"})


def test_it_is_complete_at_its_own_end_and_stays_so_when_the_others_train_longer() -> None:
    rig = serving()
    rig.create()
    ask(rig)
    rig.start("2", until=None)
    (sent,) = rig.run("2").slots
    assert (sent, rig.run("2").until) == ("n1/0", 3)
    rig.report(3, name="2", at_until=True)
    rig.ended(RunEndReason.UNTIL, 3, snapshot(3), name="2")
    assert rig.job("2").state is JobState.COMPLETED
    rig.feed(Updated(rig.now, StreamId("x"), "longer", max_position=20))
    assert rig.job("2").state is JobState.COMPLETED
    assert (rig.job("1").max_position, rig.job("2").max_position) == (20, 3)


def test_no_run_of_it_goes_beyond_its_end() -> None:
    rig = serving()
    ask(rig)
    effects = rig.command(StartJob("1", ("n1/0",), until=4))
    assert rig.job("1").state is JobState.PENDING
    assert "until must be in 1..3 for job '1', found 4" in str(rig.stream.conversation.refusal)
    assert not [effect for effect in effects if isinstance(effect, Send)]


def test_it_can_be_answered_from_anothers_results() -> None:
    rig = serving()
    rig.create()
    rig.start("1")
    rig.report(3, 0.25)
    ask(rig)
    rig.command(AnswerJob("2", "1", 3))
    assert (rig.job("2").state, rig.job("2").best) == (JobState.COMPLETED, (0.25, 3))


def test_an_ending_experiment_refuses() -> None:
    rig = serving()
    rig.create()
    rig.start("1")
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    assert rig.stream.state is ExperimentState.ENDING
    ask(rig)
    assert [str(note.reason) for note in rig.of(Refused)] == ["refused the request: the experiment is ending"]
    assert (list(rig.stream.jobs), asked(rig)) == (["1"], {})


def test_a_paused_experiment_serves_it_later() -> None:
    rig = serving()
    rig.feed(Operated(rig.now, StreamId("x"), "pause"))
    ask(rig)
    assert rig.job("1").state is JobState.PENDING
    rig.feed(Operated(rig.now, StreamId("x"), "resume"))
    assert rig.stream.idle_jobs() == [rig.job("1")]


@pytest.mark.parametrize("limit", [0, ENDLESS])
def test_a_limit_is_a_position(limit: int) -> None:
    rig = serving()
    rig.command(CreateJob("1", {"lr": 1.0}, limit=limit))
    assert not rig.stream.jobs
    assert f"limit must be in 1..{ENDLESS - 1}, found {limit}" in str(rig.stream.conversation.refusal)


def test_a_policys_job_with_a_limit_may_go_beyond_the_experiments_end() -> None:
    rig = serving()
    rig.command(CreateJob("1", None, limit=12))
    assert "needs hyperparameters" in str(rig.stream.conversation.refusal)
    rig.command(CreateJob("1", {"lr": 1.0}, limit=12))
    assert rig.called(JobCreated) == [JobCreated("1")]
    assert rig.stream.jobs_left == 1
    rig.start("1", until=12)
    for position in (8, 12):
        rig.report(position, at_until=position == 12)
    rig.ended(RunEndReason.UNTIL, 12, snapshot(12))
    assert rig.job("1").state is JobState.COMPLETED
    assert [point.position for point in rig.stream.curve(rig.job("1"))] == [8, 12]


def test_policies_that_serve_no_requests_are_told_and_no_job_is_made() -> None:
    rig = Rig()
    ask(rig)
    assert rig.called(RequestMade) == [RequestMade("a", {"lr": 0.5}, 3)]
    assert not rig.stream.jobs


def test_records_hold_all_of_it_and_older_ones_are_read() -> None:
    asked = Requested(1.0, StreamId("x"), "a", {"lr": 0.5}, 3, ExperimentId("m"))
    assert decode(kind_of(asked), encode(asked)) == asked
    assert decode("Requested", encode(asked).replace(b',"experiment":"m"', b"")) == Requested(
        1.0, StreamId("x"), "a", {"lr": 0.5}, 3
    )
    rig = serving()
    rig.command(CreateJob("1", {"lr": 1.0}, limit=12))
    records = [effect.event for effect in rig.of(Record) if isinstance(effect.event, PolicyAnswered)]
    (command,) = [command for record in records for command in record.answer.commands]
    assert command == CreateJob("1", {"lr": 1.0}, limit=12)
    assert all(decode(kind_of(record), encode(record)) == record for record in records)
    assert Settings("score", "max", 1, 1).requests is False
