"""Tests of questions to predictors: their content, their answers, and the end of the job before an answer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hopyard.policy.vocabulary import (
    ENDLESS,
    AnswerJob,
    CreateJob,
    Predict,
    PredictionReady,
    RunEndReason,
    StreamId,
    TerminateJob,
)
from hopyard_engine.core.core import Core
from hopyard_engine.core.effects import AskOutside, WithdrawQuestion
from hopyard_engine.core.events import Answered, Operated
from hopyard_engine.core.quarantine import quarantine
from tests.reasons import failure
from tests.unit.core.rig import Rig

pytestmark = pytest.mark.quick


@pytest.fixture
def rig() -> Rig:
    """A core with a job that trains."""
    return training()


def training(**terms: object) -> Rig:
    rig = Rig(**terms)  # type: ignore[arg-type]
    rig.create()
    rig.start("1")
    return rig


def asked(rig: Rig) -> AskOutside:
    (found,) = rig.of(AskOutside)
    return found


def refusal(rig: Rig, **parameters: Any) -> str:
    rig.command(Predict("t", "1", parameters))
    assert not rig.of(AskOutside)
    conversation = rig.stream.conversation
    return str([*conversation.sent_verdicts, *conversation.verdicts][-1].reason)


def test_a_question_holds_all_that_a_predictor_needs() -> None:
    rig = training(target=0.9, low=0.0, high=1.0, mode="max", seed=3)
    rig.report(1, 0.4)
    rig.report(2, math.nan)
    rig.command(Predict("t", "1"))
    question = asked(rig)
    assert (question.ticket, question.kind, question.payload["job"]) == ("policy/t", "predict", "1")
    curve = question.payload["question"].pop("curve")
    assert (curve["positions"], str(curve["values"])) == ([1, 2], "[0.4, nan]")
    assert curve["hyperparameters"] == rig.job().hyperparameters
    seed = question.payload["question"].pop("seed")
    assert 0 <= seed < 2**63
    assert question.payload["question"] == {"horizon": 10, "mode": "max", "target": 0.9, "low": 0.0, "high": 1.0}
    rig.command(Predict("u", "1", {"horizon": 5, "target": 0.7}))
    again = asked(rig).payload["question"]
    assert (again["horizon"], again["target"], again["seed"]) == (5, 0.7, seed)
    rig.report(3, 0.5)
    rig.command(Predict("v", "1"))
    assert asked(rig).payload["question"]["seed"] != seed


def test_points_without_the_metric_are_left_out(rig: Rig) -> None:
    rig.report(1, 0.4)
    rig.job().curve.points[1].whole = {"loss": 1.0}
    rig.command(Predict("t", "1"))
    assert asked(rig).payload["question"]["curve"]["values"] == []


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"horizon": 0}, "the horizon of a prediction is a position, at least 1, found 0"),
        ({"horizon": 2.5}, "the horizon of a prediction is a position, at least 1, found 2.5"),
        ({"horizon": ENDLESS + 1}, "the horizon of a prediction is a position, at least 1, found 2147483648"),
        ({"target": math.inf}, "the target of a prediction is a finite number, found inf"),
        ({"target": math.nan}, "the target of a prediction is a finite number, found nan"),
        ({"target": -(10**400)}, f"the target of a prediction is a finite number, found -1{'0' * 78}"),
        ({"target": True}, "the target of a prediction is a finite number, found True"),
        ({"stesp": 3}, "a prediction takes target and horizon, found stesp"),
    ],
)
def test_what_cannot_be_asked_is_refused(rig: Rig, parameters: dict[str, Any], said: str) -> None:
    assert refusal(rig, **parameters) == said


def test_without_an_end_a_horizon_is_needed() -> None:
    rig = training(max_position=ENDLESS)
    rig.report(1, 0.4)
    assert "needs a horizon" in refusal(rig)
    rig.command(Predict("u", "1", {"horizon": 50}))
    assert asked(rig).payload["question"]["horizon"] == 50


def test_without_an_end_the_limit_of_the_job_is_the_horizon() -> None:
    rig = training(max_position=ENDLESS)
    rig.stream.jobs["1"].limit = 7
    rig.command(Predict("t", "1"))
    assert asked(rig).payload["question"]["horizon"] == 7


def test_an_answer_is_heard_once(rig: Rig) -> None:
    rig.report(1, 0.4)
    rig.command(Predict("t", "1"))
    for _ in range(2):
        rig.feed(Answered(rig.now, StreamId("x"), "policy/t", {"positions": []}))
    assert rig.called(PredictionReady) == [PredictionReady("t", "1", {"positions": []})]


def test_the_end_of_the_job_is_the_answer_and_a_later_one_counts_for_nothing(rig: Rig) -> None:
    rig.create()
    rig.report(1, 0.4)
    rig.command(Predict("t", "1"), Predict("u", "2"))
    rig.command(TerminateJob("1"))
    assert not rig.of(WithdrawQuestion)  # it trains to its next boundary
    rig.ended(RunEndReason.TERMINATED, 1)
    assert rig.of(WithdrawQuestion) == [WithdrawQuestion(StreamId("x"), "policy/t")]
    assert rig.called(PredictionReady) == [PredictionReady("t", "1", error="job 1 is TERMINATED by now")]
    journalled = len(rig.journal)
    assert rig.feed(Answered(rig.now, StreamId("x"), "policy/t", {})) == []
    assert len(rig.journal) == journalled
    assert list(rig.stream.asks) == ["policy/u"]
    assert "job '1' is TERMINATED: there is nothing to predict" in refusal(rig)


def test_a_job_that_is_answered_from_another_takes_its_questions_with_it(rig: Rig) -> None:
    rig.report(1, 0.4)
    rig.create()
    rig.command(Predict("t", "2"))
    rig.command(AnswerJob("2", "1", 1))
    assert rig.of(WithdrawQuestion) == [WithdrawQuestion(StreamId("x"), "policy/t")]


def test_the_end_of_the_experiment_withdraws_all(rig: Rig) -> None:
    rig.report(1, 0.4)
    rig.command(Predict("t", "1"))
    rig.feed(Operated(rig.now, StreamId("x"), "stop"))
    rig.ended(RunEndReason.TERMINATED, 1)
    assert WithdrawQuestion(StreamId("x"), "policy/t") in rig.of(WithdrawQuestion)
    assert not rig.stream.asks


def test_a_quarantine_withdraws_all(rig: Rig) -> None:
    rig.report(1, 0.4)
    rig.command(Predict("t", "1"))
    assert WithdrawQuestion(StreamId("x"), "policy/t") in quarantine(rig.core, StreamId("x"), failure("a bug"), rig.now)


def test_a_recovered_core_asks_the_same_again(rig: Rig) -> None:
    rig.report(1, 0.4)
    rig.command(Predict("t", "1"), CreateJob("2"))
    core = Core()
    for event in rig.journal:
        core.restore(event)  # type: ignore[arg-type]
    again = [effect for effect in core.recovered() if isinstance(effect, AskOutside)]
    assert again == list(rig.stream.asks.values())
