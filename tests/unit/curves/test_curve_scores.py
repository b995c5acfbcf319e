from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from curve_scores.baselines import BaseRate, LastAndIncrements
from curve_scores.data import ACCURACY, EARLIER, HISTORY, RETURNS, curve_sets
from curve_scores.evaluate import BASELINES, PARTS, Plan, evaluate
from curve_scores.scores import Score, crps, means, reliability, score

from hopyard.predictor import LEVELS, Curve, Prediction, Question

pytestmark = pytest.mark.quick


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    finals = rng.uniform(0.3, 0.9, (400, 1))
    curves = finals * (1 - np.exp(-np.arange(1, 21) / 5)) + rng.normal(0, 0.01, (400, 20))
    arrays = dict.fromkeys(ACCURACY, curves) | dict.fromkeys(RETURNS, 1000.0 * curves[:10])
    np.savez(tmp_path / "curves.npz", **{name: array.astype(np.float32) for name, array in arrays.items()})
    return tmp_path / "curves.npz"


def test_crps_of_a_known_distribution() -> None:
    # Of the uniform distribution on [0, 1]: x^2 - x + 1/3.
    for value in (0.0, 0.25, 0.5, 0.9):
        assert crps(LEVELS, value) == pytest.approx(value**2 - value + 1 / 3, abs=1e-4)
    assert crps([3.0] * 100, 5.0) == pytest.approx(2.0)


def test_crps_is_the_integral_of_the_squared_difference_of_distributions() -> None:
    points = np.sort(np.random.default_rng(2).normal(size=100))
    grid = np.linspace(-10, 10, 200_001)
    distribution = np.searchsorted(points, grid, side="right") / 100
    assert crps(points.tolist(), 0.3) == pytest.approx(
        np.trapezoid((distribution - (grid >= 0.3)) ** 2, grid), abs=1e-4
    )


def test_a_score_reads_interval_and_chance() -> None:
    prediction = Prediction((2, 3), (0.5, 0.5), (0.1, 0.1), (0.1, 0.7), LEVELS)
    inside = score(prediction, 0.94, target=0.9, seconds=0.5)
    assert (inside.inside, inside.chance, inside.reached) == (True, 0.7, True)
    assert inside.rank == pytest.approx(0.94)
    assert not score(prediction, 0.96, target=0.97, seconds=0.5).inside
    assert means([inside])["brier"] == pytest.approx(0.09)


@pytest.mark.parametrize("final", [(0.5,) * 99, (*LEVELS[1:], 0.1), (*LEVELS[:-1], float("nan"))])
def test_a_prediction_that_is_none_has_no_score(final: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="final quantiles"):
        score(Prediction((2,), (0.5,), (0.1,), (0.5,), final), 0.5, 0.5, 0.0)
    with pytest.raises(ValueError, match="not in 0 to 1"):
        score(Prediction((2,), (0.5,), (0.1,), (1.5,), LEVELS), 0.5, 0.5, 0.0)


def test_reliability_bins() -> None:
    scores = [
        Score(0.1, True, chance, reached, 0.05, 0.0) for chance, reached in ((0.0, False), (0.95, True), (1.0, False))
    ]
    found = reliability(scores)
    assert [row["count"] for row in found["target"]] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert found["target"][9]["predicted"] == pytest.approx(0.975)
    assert found["target"][9]["observed"] == pytest.approx(0.5)
    assert found["target"][1]["observed"] is None
    assert found["ranks"][0] == 1.0


def test_histories_leave_out_what_is_evaluated(file: Path) -> None:
    for curves in curve_sets(file, range(200, 300)):
        assert curves.target == pytest.approx(np.percentile(curves.values[list(curves.scored), -1], 80))
        if curves.pool is None:
            assert len(curves.others(3)) == len(curves.values) - 1
            continue
        assert curves.pool == tuple(range(200))
        histories = [history for history, _ in curves.histories(20) if history is not None]
        assert len({repr(history) for history in histories}) == 20
        assert all(len(history) == HISTORY and all(run.ended for run in history) for history in histories)
        assert histories == [history for history, _ in curves.histories(20)]


@pytest.mark.parametrize("kind", ["fitting", "strange"])
def test_earlier_rows_are_none_of_those_that_are_evaluated_or_learnt_from(
    file: Path, kind: Literal["fitting", "strange"]
) -> None:
    sets = curve_sets(file, range(200, 300))
    for one, other in pairwise(sets[:3]):
        ((history, earlier),) = one.histories(1, 5, kind)
        assert history is not None
        assert (len(history), len(earlier)) == (5, EARLIER)
        assert all(len(run.values) == one.length and run.ended for run in earlier)
        source = one if kind == "fitting" else other
        firsts = {value for row in range(200) for value in source.values[row, :1].tolist()}
        assert {run.values[0] for run in earlier} <= firsts
        assert kind == "strange" or not set(map(repr, history)) & set(map(repr, earlier))


def test_the_target_is_that_of_all_evaluated_rows_when_few_are_predicted(file: Path) -> None:
    few, every = curve_sets(file, range(200, 300), 25)[0], curve_sets(file, range(200, 300))[0]
    assert few.scored == (200, 225, 250, 275)
    assert few.target == every.target


def test_rows_that_are_not_there(file: Path) -> None:
    with pytest.raises(ValueError, match="has rows 0 to 399"):
        curve_sets(file, range(350, 450))
    with pytest.raises(ValueError, match="5 rows of 300 are left"):
        curve_sets(file, range(5, 310))


def test_baselines_say_what_they_promise() -> None:
    others = (Curve((1, 2, 3), (0.1, 0.2, 0.4)), Curve((1, 2, 3), (0.5, 0.5, 0.6)))
    question = Question(Curve((1, 2), (0.2, 0.3)), 3, target=0.45, others=others)
    prediction = LastAndIncrements().predict(question)
    assert prediction.reaches == (0.5,)
    assert prediction.final == pytest.approx((0.4,) * 50 + (0.5,) * 50)
    assert BaseRate([0.1, 0.5]).predict(question).reaches == (0.5,)


@pytest.mark.merge
def test_all_baselines_are_scored_alike_in_one_or_two_processes(file: Path) -> None:
    plan = Plan(file, range(200, 250), every=1, draws=2, predictors=tuple(BASELINES))
    one, two = (evaluate(plan, jobs, lambda _: None) for jobs in (1, 2))
    for row in (*one["scores"], *one["means"], *two["scores"], *two["means"]):
        assert row.pop("ms") >= 0
    assert one == two
    assert len(one["means"]) == len(BASELINES) * len(PARTS)
    base_rate = next(row for row in one["scores"] if row["predictor"] == "base rate" and row["set"] == ACCURACY[0])
    assert base_rate["brier"] == pytest.approx(0.16)  # 0.2 * 0.8
    increments = [row for row in one["scores"] if row["predictor"] == "last + increments" and row["set"] == ACCURACY[0]]
    assert {row["scored"] for row in increments} == {100}
