"""Tests of experiments whose metric no report contains: they pause once, and may get another metric."""

from __future__ import annotations

import math

import pytest

from hopyard.policy.vocabulary import (
    CreateJob,
    ExperimentChange,
    ExperimentId,
    ExperimentState,
    IterationFinish,
    Report,
    RunEndReason,
    StreamId,
)
from hopyard.policy.vocabulary.reasons import ReasonCode
from hopyard_engine.core import Core
from hopyard_engine.core.actions.objective import nearest
from hopyard_engine.core.effects import Decide, Refused
from hopyard_engine.core.events import Answered, ExperimentJoined, Operated, Reports, Updated
from hopyard_engine.core.handlers.commands import CREATE
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.journal.codec import decode, encode, kind_of
from tests.simulation import dump
from tests.unit.core.rig import Rig, settings, snapshot

pytestmark = pytest.mark.quick


def trained(**terms: object) -> Rig:
    """Return a core with two jobs in training, of an experiment that optimizes `accuracy`."""
    rig = Rig(**{"metric": "accuracy", **terms})  # type: ignore[arg-type]
    for name, slot in (("1", "n1/0"), ("2", "n1/1")):
        rig.create()
        rig.start(name, slot)
    return rig


def say(rig: Rig, name: str = "1", position: int = 1, **metrics: float) -> None:
    rig.say(rig.key(name), Reports((Report(position, metrics),)))


def operate(rig: Rig, action: str) -> None:
    rig.feed(Operated(rig.now, StreamId("x"), action))  # type: ignore[arg-type]


def rename(rig: Rig, metric: str, request: str = "") -> list[str]:
    """Change the metric; return the codes of refusals."""
    rig.feed(Updated(rig.now, StreamId("x"), request or f"to {metric}", metric=metric))
    return [effect.reason.code.value for effect in rig.of(Refused)]


def propose(rig: Rig, job: str) -> None:
    """Create a job with a configuration of the generator."""
    rig.command(CreateJob(job))
    rig.feed(Answered(rig.now, StreamId("x"), CREATE + job, {"lr": 0.1}))


def leave(rig: Rig, name: str = "1", position: int = 1) -> None:
    rig.ended(RunEndReason.SUSPENDED, position, snapshot(position, f"{name}-{position}"), name)
    rig.stored(position, name, sha256=f"{name}-{position}")


def founder(rig: Rig) -> Experiment:
    return rig.stream.founder


def replayed(rig: Rig) -> None:
    """Check that the journal leads to the same state, also through its written form."""
    again = Core()
    for event in rig.journal:
        again.handle(decode(kind_of(event), encode(event)))
    dump.compare(rig.stream, again.streams[StreamId("x")])


def test_the_first_report_without_the_metric_pauses_the_experiment_and_says_how_to_mend_it() -> None:
    rig = trained()
    say(rig, acc=0.5, loss=2.0)
    reason = founder(rig).reason
    assert founder(rig).state is ExperimentState.PAUSING
    assert reason is not None
    assert reason.code is ReasonCode.METRIC_MISSING
    assert str(reason) == (
        "no report contains the metric accuracy; job 1 has reported acc, loss up to 1; "
        "change it with hopyard set x --metric acc, or resume to continue without it"
    )
    assert [body.kind.value for body in rig.sent(Decide)] == ["SUSPEND", "SUSPEND"]  # type: ignore[union-attr]
    assert [call.change for call in rig.called(ExperimentChange)] == ["paused"]
    assert rig.called(IterationFinish) == []  # The policy decides nothing by a report that it cannot rate.
    leave(rig)
    say(rig, "2", acc=0.4, loss=2.0)  # It was on its way.
    leave(rig, "2")
    assert (founder(rig).state, founder(rig).reason) == (ExperimentState.PAUSED, reason)
    assert [call.change for call in rig.called(ExperimentChange)] == ["paused"]
    replayed(rig)


def test_a_report_with_the_metric_pauses_nothing_then_or_later() -> None:
    rig = trained()
    say(rig, accuracy=math.nan)
    say(rig, "2", acc=0.5)
    say(rig, position=2, acc=0.5)
    assert founder(rig).state is ExperimentState.RUNNING


def test_a_metric_that_comes_less_often_is_awaited_in_the_reports_of_one_job() -> None:
    rig = trained(metric_every=3)
    for position in (1, 4):  # Reports count, not positions.
        say(rig, position=position, loss=1.0)
        say(rig, "2", position=position, loss=1.0)
    assert founder(rig).state is ExperimentState.RUNNING
    say(rig, position=5, accuracy=0.5)
    for position in range(6, 12):
        say(rig, "2", position=position, loss=1.0)
    assert founder(rig).state is ExperimentState.RUNNING
    rig = trained(metric_every=3)
    for position in (1, 2, 3):
        assert founder(rig).state is ExperimentState.RUNNING
        say(rig, position=position, loss=1.0)
    assert founder(rig).state is ExperimentState.PAUSING


def test_a_person_who_resumes_it_is_not_asked_again() -> None:
    rig = trained()
    say(rig, acc=0.5)
    leave(rig)
    leave(rig, "2", 0)
    operate(rig, "resume")
    rig.start("1")
    say(rig, position=2, acc=0.6)
    assert founder(rig).state is ExperimentState.RUNNING
    operate(rig, "pause")
    leave(rig, position=2)
    operate(rig, "resume")
    rig.start("1")
    say(rig, position=3, acc=0.6)
    assert founder(rig).state is ExperimentState.RUNNING
    assert [call.change for call in rig.called(ExperimentChange)].count("paused") == 2
    replayed(rig)


def test_reports_of_a_paused_experiment_pause_it_after_it_was_resumed() -> None:
    rig = trained()
    operate(rig, "pause")
    say(rig, acc=0.5)
    leave(rig)
    leave(rig, "2", 0)
    assert founder(rig).reason is not None
    assert founder(rig).reason.code is ReasonCode.PAUSED_BY_PERSON  # type: ignore[union-attr]
    operate(rig, "resume")
    rig.start("1")
    say(rig, position=2, acc=0.5)
    assert founder(rig).reason.code is ReasonCode.METRIC_MISSING  # type: ignore[union-attr]


def test_after_a_change_of_the_metric_all_reports_count() -> None:
    rig = trained()
    say(rig, acc=0.5)
    say(rig, "2", acc=0.7)
    leave(rig)
    leave(rig, "2")
    assert founder(rig).best is None
    assert rename(rig, "acc") == []
    assert founder(rig).settings.metric == "acc"
    assert founder(rig).best == ("2", 1, 0.7)
    assert (rig.job("1").best, rig.job("1").last) == ((0.5, 1), 0.5)
    assert founder(rig).state is ExperimentState.PAUSED
    operate(rig, "resume")
    rig.start("1")
    say(rig, position=2, acc=0.9)
    assert (founder(rig).state, founder(rig).best) == (ExperimentState.RUNNING, ("1", 2, 0.9))
    replayed(rig)


def test_a_target_that_was_reached_by_the_new_metric_ends_the_experiment_when_it_is_resumed() -> None:
    rig = trained(target=0.6)
    say(rig, acc=0.7)
    leave(rig)
    leave(rig, "2", 0)
    rename(rig, "acc")
    operate(rig, "resume")
    assert founder(rig).state is ExperimentState.COMPLETED


def test_a_metric_that_decisions_depend_on_stays() -> None:
    rig = trained()
    say(rig, accuracy=0.5, acc=0.5)
    assert rename(rig, "acc") == ["METRIC_REPORTED"]
    assert founder(rig).settings.metric == "accuracy"
    replayed(rig)


def test_a_metric_that_no_report_contains_is_refused_if_there_are_reports() -> None:
    rig = trained()
    assert rename(rig, "acc") == []
    say(rig, score=0.5)
    assert rename(rig, "acd") == ["METRIC_NOT_REPORTED"]
    assert str(rig.of(Refused)[0].reason) == "no report contains acd; reported are score"
    assert rename(rig, "score") == []


def test_a_metric_stays_if_the_generator_has_proposed_from_results() -> None:
    rig = Rig(metric="accuracy", generator_reads="reports")
    propose(rig, "1")
    propose(rig, "2")
    rig.start("1")
    say(rig, acc=0.5)
    leave(rig)
    operate(rig, "resume")
    propose(rig, "3")
    assert rename(rig, "acc") == ["METRIC_LEARNED"]


def test_a_metric_may_change_if_the_generator_has_results_and_proposed_nothing_since() -> None:
    rig = Rig(metric="accuracy", generator_reads="reports")
    propose(rig, "1")
    propose(rig, "2")
    rig.start("1")
    say(rig, acc=0.5)
    assert [call.kind for call in founder(rig).generator_calls] == ["create", "create", "report"]
    assert rename(rig, "acc") == []


def test_a_result_that_the_generator_gets_later_is_rated_by_the_new_metric() -> None:
    rig = trained(max_position=1, generator_reads="finals")
    rig.say(rig.key("1"), Reports((Report(1, {"acc": 0.5}, at_until=True),)))
    leave(rig)
    assert [call.metrics for call in founder(rig).generator_calls] == [{}]
    rename(rig, "acc")
    assert [(call.metrics, call.position) for call in founder(rig).generator_calls] == [({"acc": 0.5}, 1)]
    assert founder(rig).told_generator == 0


def test_the_experiments_of_a_group_change_together() -> None:
    rig = trained()
    joined = ExperimentJoined(rig.now, StreamId("x"), ExperimentId("y"), settings(metric="accuracy"), {})
    rig.feed(joined)
    assert rename(rig, "acc") == []
    assert {one.settings.metric for one in rig.stream.experiments.values()} == {"acc"}


@pytest.mark.parametrize(
    ("metric", "reported", "found"),
    [
        ("accuracy", ["acc", "loss"], "acc"),
        ("acc", ["loss", "val_acc"], "val_acc"),
        ("Accuracy", ["accuracy", "accuracy_top5"], "accuracy"),
        ("acuracy", ["accuracy", "loss"], "accuracy"),
        ("score", ["loss", "lr"], ""),
        ("score", ["loss"], "loss"),
        ("score", [], ""),
    ],
)
def test_the_name_that_is_meant(metric: str, reported: list[str], found: str) -> None:
    assert nearest(metric, reported) == found
