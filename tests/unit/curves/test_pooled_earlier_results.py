"""Tests of what `pooled` learns from earlier experiments, and how it detects that they do not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hopyard.predictor import Prediction, Question
from hopyard.predictor.checks import problems
from hopyard.predictor.testing import crps
from hopyard_curves.pooled import PooledPredictor
from tests.unit.curves.test_pooled import curve, jumping, question

Floats = NDArray[np.float64]

POOLED = PooledPredictor()
NOBODY = np.empty((0, 60))


def asked(values: Floats, others: Floats, earlier: Floats) -> Question:
    return replace(question(values, others, 12), earlier=tuple(curve(row) for row in earlier), target=0.65)


def score(others: Floats, earlier: Floats) -> float:
    """Return the mean CRPS (continuous ranked probability score) of forty curves."""
    rows = jumping(40, 1)
    return float(np.mean([crps(answer(row, others, earlier), row[-1]) for row in rows]))


def answer(row: Floats, others: Floats, earlier: Floats) -> Prediction:
    given = asked(row, others, earlier)
    found = POOLED.predict(given)
    assert problems(given, found) == []
    return found


def falling(count: int) -> Floats:
    """Return curves that begin like those of `jumping` but fall by as much as those rise."""
    chance = np.random.default_rng(3)
    axis = np.arange(1, 61)
    end = chance.normal(0.5, 0.05, (count, 1))
    return np.asarray(end - 0.3 / axis**0.5 - 0.2 * (axis >= 30) + chance.normal(0, 0.01, (count, 60)))


def test_the_first_job_is_predicted_by_those_of_an_earlier_experiment() -> None:
    assert score(NOBODY, jumping(60, 2)) < 0.7 * score(NOBODY, NOBODY)


@pytest.mark.parametrize("history", [3, 10])
def test_a_short_history_is_helped(history: int) -> None:
    own = jumping(history, 5)
    assert score(own, jumping(60, 2)) < 0.95 * score(own, NOBODY)


def test_what_does_not_fit_is_found_out() -> None:
    own = jumping(10, 5)
    assert score(own, falling(60)) < 1.1 * score(own, NOBODY)
    assert score(NOBODY, falling(60)) > 1.2 * score(NOBODY, NOBODY)  # Nothing shows it yet.


def test_earlier_runs_that_came_no_further_change_nothing() -> None:
    own, row = jumping(10, 5), jumping(1, 1)[0]
    short = replace(asked(row, own, NOBODY), earlier=tuple(curve(other[:12], ended=False) for other in jumping(5, 2)))
    assert POOLED.predict(short) == answer(row, own, NOBODY)


def test_the_order_of_earlier_runs_plays_no_part() -> None:
    own, earlier, row = jumping(5, 5), jumping(20, 2), jumping(1, 1)[0]
    one, other = answer(row, own, earlier), answer(row, own, earlier[::-1])
    assert one.final == pytest.approx(other.final, abs=1e-9)
