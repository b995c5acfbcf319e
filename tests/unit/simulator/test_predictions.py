"""Tests of predictions in virtual time: a policy asks, and the predictor computes each question once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from typing_extensions import override

from hopyard.policy import CONTINUE, Cluster, Decision, IterationFinish, PredictionReady
from hopyard.predictor import LEVELS, Curve, Prediction, Predictor, Question
from hopyard_policies.default import DefaultPolicy
from hopyard_simulator import Costs, PredictionCache, Result, TraceWorkload, simulate
from tests.unit.simulator.test_by_hand import FOUR

pytestmark = pytest.mark.quick


class Optimist(Predictor):
    """Predicts that the last value increases by 0.1 a position; records the questions in `asked`."""

    reads = "curves"

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Question] = []

    @override
    def predict(self, question: Question) -> Prediction:
        self.asked.append(question)
        last, value = question.curve.positions[-1], question.curve.values[-1]
        ahead = tuple(range(last + 1, question.horizon + 1))
        mean = tuple(value + 0.1 * (position - last) for position in ahead)
        reaches = tuple(float(question.target is not None and one >= question.target) for one in mean)
        return Prediction(ahead, mean, (0.0,) * len(ahead), reaches, (mean[-1],) * len(LEVELS))


class Seer(DefaultPolicy):
    """Asks for a prediction after each position, and terminates jobs that cannot reach the target."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[str] = []

    @override
    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        if not event.at_until:
            cluster.predict(event.job)
            return Decision.proceed(event.position + 1)
        return CONTINUE

    @override
    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        if prediction.error:
            self.errors.append(prediction.error)
        elif prediction.result.reaches[-1] == 0 and not cluster.jobs[prediction.job].state.ended:
            cluster.terminate_job(prediction.job)

    @override
    def _undisturbed(self, job: object) -> int:
        return 1


def run(predictor: Predictor | None, foreseen: PredictionCache | None = None, **options: Any) -> Result:
    return simulate(
        TraceWorkload(FOUR), Seer, slots=2, target=0.7, predictor=predictor, foreseen=foreseen, details=True, **options
    )


def test_jobs_without_a_chance_are_ended() -> None:
    optimist = Optimist()
    result = run(optimist)
    # Job 1 has 0.1 at 1.0, so 0.3 at best. The answer comes while it saves, after which it leaves.
    ends = {one.job: one.end for one in result.runs or ()}
    assert ends["1"] == 1.0
    assert optimist.asked[0].curve.values == (0.1,)
    assert optimist.asked[0].target == 0.7
    assert [len(question.others) for question in optimist.asked][:2] == [0, 1]


def test_a_prediction_takes_its_time() -> None:
    result = run(Optimist(), costs=Costs(prediction=1.5))
    assert {one.job: one.end for one in result.runs or ()}["1"] == 3.0


def test_the_same_question_is_computed_once() -> None:
    foreseen, optimist = PredictionCache(), Optimist()
    first = run(optimist, foreseen)
    second = run(optimist, foreseen)
    assert first == second
    assert foreseen.asked == 2 * foreseen.computed
    assert len(optimist.asked) == foreseen.computed


def test_without_a_predictor_policies_hear_an_error() -> None:
    policies: list[Seer] = []

    def make() -> Seer:
        policies.append(Seer())
        return policies[-1]

    result = simulate(TraceWorkload(FOUR), make, slots=2, predictor=None)
    assert result.jobs_at_R[-1][1] == 4
    assert "no predictor" in policies[0].errors[0]
    assert result.predictor is None
    assert result.predictions == result.predictions_failed == len(policies[0].errors)


def test_the_result_counts_questions() -> None:
    optimist = Optimist()
    result = run(optimist)
    assert (result.predictor, result.predictions, result.predictions_failed) == ("Optimist", len(optimist.asked), 0)


@pytest.mark.parametrize("name", ["grid"])
def test_the_real_ones(name: str) -> None:
    once, again = (simulate(TraceWorkload(FOUR), Seer, slots=2, target=0.95, predictor=name) for _ in range(2))
    assert once == again


def test_questions_with_other_curves_beside_them_differ() -> None:
    foreseen, optimist = PredictionCache(), Optimist()
    beside = Curve((1, 2), (0.1, 0.1), {"x": 1})
    others = [
        beside,
        replace(beside, hyperparameters={"x": 2}),
        replace(beside, positions=(2, 4)),
        replace(beside, ended=True),
        replace(beside, values=(0.1, math.nan)),
    ]
    for one in (*others, *others):
        foreseen.of(optimist, Question(Curve((1,), (0.1,)), 3, target=0.7, others=(one,)))
    foreseen.of(optimist, Question(Curve((1,), (0.1,)), 3, target=0.7, others=(beside, beside)))
    assert (foreseen.asked, foreseen.computed) == (11, 6)


class Broken(Optimist):
    """A predictor with a defect in its code."""

    @override
    def predict(self, question: Question) -> Prediction:
        raise ZeroDivisionError("division by zero")


def test_what_a_predictor_raises_is_the_answer_as_in_a_live_cluster() -> None:
    policies: list[Seer] = []

    def make() -> Seer:
        policies.append(Seer())
        return policies[-1]

    result = simulate(TraceWorkload(FOUR), make, slots=2, predictor=Broken())
    assert result.jobs_at_R[-1][1] == 4
    assert policies[0].errors[0].startswith("Broken: ZeroDivisionError: division by zero (test_predictions.py:")
