"""Tests of what `pooled` learns from other curves, and when it ignores them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hopyard.predictor import Curve, Question
from hopyard.predictor.testing import crps, rank
from hopyard_curves.grid import GridPredictor
from hopyard_curves.pooled import PooledPredictor

pytestmark = pytest.mark.quick

Floats = NDArray[np.float64]

LENGTH = 60
POOLED, ALONE = PooledPredictor(), GridPredictor()


def jumping(count: int, seed: int) -> Floats:
    """Return accuracies that rise slowly and jump at 40, as at a step of the learning rate, which no single curve predicts."""
    chance = np.random.default_rng(seed)
    axis = np.arange(1, LENGTH + 1)
    end, jump = chance.normal(0.5, 0.05, (count, 1)), chance.normal(0.2, 0.02, (count, 1))
    return np.asarray(end - 0.3 / axis**0.5 + jump * (axis >= 40) + chance.normal(0, 0.01, (count, LENGTH)))


def parting(count: int, seed: int) -> Floats:
    """Return curves that are equal for 30 epochs; then half of them rise from 0.1 to 0.8."""
    chance = np.random.default_rng(seed)
    axis = np.arange(1, LENGTH + 1)
    rises = (np.arange(count) % 2)[:, None]
    return np.asarray(
        0.1 + 0.7 * rises * (axis > 30) * (1 - 0.9 ** (axis - 30)) + chance.normal(0, 0.01, (count, LENGTH))
    )


def curve(values: Floats, first: int = 1, step: int = 1, ended: bool = True) -> Curve:
    return Curve(tuple(range(first, first + step * len(values), step)), tuple(values.tolist()), ended=ended)


def question(values: Floats, others: Floats, seen: int) -> Question:
    shown = curve(values[:seen], ended=False)
    return Question(shown, LENGTH, low=0.0, high=1.0, others=tuple(curve(row) for row in others))


def test_without_other_curves_the_answer_is_that_of_grid() -> None:
    asked = replace(question(jumping(1, 0)[0], np.empty((0, LENGTH)), 12), target=0.7)
    assert POOLED.predict(asked) == ALONE.predict(asked)


def test_runs_that_came_no_further_change_nothing() -> None:
    values = jumping(4, 0)
    asked = question(values[0], values[1:, :12], 12)
    running = replace(asked, others=tuple(replace(other, ended=False) for other in asked.others))
    assert POOLED.predict(running) == ALONE.predict(asked)


@pytest.mark.merge
@pytest.mark.parametrize("seen", [6, 12, 24])
@pytest.mark.parametrize("history", [10, 40])
def test_predictions_are_calibrated_and_far_better_than_alone(seen: int, history: int) -> None:
    curves, histories = jumping(40, 1), [jumping(history, seed) for seed in range(100, 110)]
    asked = [question(row, histories[at % 10], seen) for at, row in enumerate(curves)]
    pooled = [POOLED.predict(one) for one in asked]
    alone = [ALONE.predict(one) for one in asked[:10]]
    ranks = np.array([rank(answer, row[-1]) for answer, row in zip(pooled, curves, strict=True)])
    score = np.mean([crps(answer, row[-1]) for answer, row in zip(pooled, curves, strict=True)])
    score_alone = np.mean([crps(answer, row[-1]) for answer, row in zip(alone, curves[:10], strict=False)])
    assert score < 0.25 * score_alone
    assert np.mean((ranks > 0.05) & (ranks < 0.95)) >= 0.8
    assert 0.3 <= np.mean((ranks > 0.25) & (ranks < 0.75)) <= 0.75
    assert 0.35 < ranks.mean() < 0.65


def test_the_step_that_others_made_is_foreseen_where_they_made_it() -> None:
    curves = jumping(21, 3)
    answer = POOLED.predict(question(curves[0], curves[1:], 20))
    there = answer.positions.index(40)
    assert answer.mean[there + 1] - answer.mean[there - 2] == pytest.approx(0.2, abs=0.04)
    assert len(answer.mean) == LENGTH - 20


def test_two_kinds_of_curves_give_a_distribution_with_two_peaks() -> None:
    curves = parting(31, 4)
    answer = POOLED.predict(replace(question(curves[0], curves[1:], 15), target=0.5))
    final = np.array(answer.final)
    assert answer.reaches[-1] == pytest.approx(0.5, abs=0.15)
    assert np.mean((final > 0.2) & (final < 0.65)) < 0.2


def test_a_curve_is_foreseen_by_those_that_were_like_it() -> None:
    curves = parting(40, 5)
    for row, reaches in ((curves[0], False), (curves[1], True)):
        answer = POOLED.predict(replace(question(row, curves[2:], 36), target=0.5))
        assert (answer.reaches[-1] > 0.9) if reaches else (answer.reaches[-1] < 0.1)


@pytest.mark.merge
@pytest.mark.parametrize("history", [1, 3, 10, 100])
def test_history_of_another_kind_hurts_little(history: int) -> None:
    chance = np.random.default_rng(6)
    axis = np.arange(1, LENGTH + 1)
    learners = 0.8 - 0.6 * axis ** -chance.uniform(0.4, 0.9, (20, 1)) + chance.normal(0, 0.01, (20, LENGTH))
    others = np.full((history, LENGTH), 0.1) + chance.normal(0, 0.01, (history, LENGTH))
    asked = [question(row, others, 15) for row in learners]
    pooled = np.mean([crps(POOLED.predict(one), row[-1]) for one, row in zip(asked, learners, strict=True)])
    alone = np.mean([crps(ALONE.predict(one), row[-1]) for one, row in zip(asked, learners, strict=True)])
    assert pooled < 1.3 * alone


def test_running_curves_help_as_far_as_they_came() -> None:
    curves, others = jumping(20, 7), jumping(20, 8)
    running = tuple(curve(row[:45], ended=False) for row in others)
    for row in curves[:5]:
        asked = replace(question(row, others[:0], 20), others=running)
        answer, alone = POOLED.predict(asked), ALONE.predict(asked)
        near = answer.positions.index(44)
        assert abs(answer.mean[near] - row[43]) < abs(alone.mean[near] - row[43])
        assert answer.mean[-1] == alone.mean[-1]
        assert answer.final == alone.final


def test_positions_of_others_need_not_agree() -> None:
    curves, others = jumping(1, 9), jumping(20, 10)
    sparse = tuple(curve(row[2::3], first=3, step=3) for row in others)
    full = question(curves[0], others, 20)
    dense, thin = POOLED.predict(full), POOLED.predict(replace(full, others=sparse))
    assert thin.positions == dense.positions
    assert thin.mean[-1] == pytest.approx(dense.mean[-1], abs=0.02)


def test_others_that_diverged_change_little() -> None:
    curves, others = jumping(1, 11), jumping(30, 12)
    plain = replace(question(curves[0], others, 20), low=None, high=None)
    wild = others.copy()
    wild[::10, 25:] = -1e30
    empty = Curve((1, 2), (float("nan"), float("inf")), ended=True)
    told = replace(plain, others=(*(curve(row) for row in wild), empty, Curve((), ())))
    middle = len(plain.others) // 2 + 30
    assert POOLED.predict(told).final[middle] == pytest.approx(POOLED.predict(plain).final[middle], abs=0.05)


def test_one_run_is_trusted_less_than_ten() -> None:
    curves, others = jumping(1, 13), jumping(10, 14)
    widths = []
    for count in (1, 10):
        final = POOLED.predict(question(curves[0], others[:count], 10)).final
        widths.append(final[94] - final[5])
    assert widths[0] > 1.5 * widths[1]
