"""Tests of curves that jump at a milestone, as at a step of the learning rate: before, on and after the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest
from numpy.typing import NDArray

from hopyard.predictor import Predictor, Question
from hopyard.predictor.testing import crps, rank
from hopyard_curves.grid import GridPredictor
from hopyard_curves.grid.step_detection import without_steps
from hopyard_curves.pooled import PooledPredictor
from tests.unit.curves.test_pooled import curve

pytestmark = pytest.mark.quick

Floats = NDArray[np.float64]

LENGTH, AT = 100, 50
NOBODY = np.empty((0, LENGTH))
GRID, POOLED = GridPredictor(), PooledPredictor()


def smooth(count: int, chance: np.random.Generator) -> Floats:
    """Return accuracies that rise as a power law."""
    axis = np.arange(1, LENGTH + 1)
    end, start = chance.normal(0.62, 0.06, (count, 1)), chance.uniform(0.1, 0.3, (count, 1))
    return np.asarray(end - (end - start) * axis ** -chance.uniform(0.5, 1.0, (count, 1)))


def stepped(count: int, seed: int) -> Floats:
    """Return the curves of `smooth` with a rise of about 0.16 from epoch 50 on, and a third of the noise after it."""
    chance = np.random.default_rng(seed)
    axis = np.arange(1, LENGTH + 1)
    rows, within = smooth(count, chance), chance.uniform(1, 3, (count, 1))
    gained = 1 - np.exp(-np.maximum(axis - AT + 1, 0) / within)
    noise = chance.normal(0, 0.006, (count, LENGTH)) * np.where(axis < AT, 3.0, 1.0)
    return np.asarray(rows + chance.normal(0.16, 0.03, (count, 1)) * gained + noise)


def asked(values: Floats, seen: int, others: Floats = NOBODY) -> Question:
    history = tuple(curve(row) for row in others)
    return Question(curve(values[:seen], ended=False), LENGTH, low=0.0, high=1.0, others=history)


def scores(predictor: Predictor, rows: Floats, seen: int, histories: Sequence[Floats]) -> tuple[float, float]:
    """Return the mean CRPS of the last report, and the share of reports between the 5 % and 95 % quantiles.

    The histories are used in turn for the rows.
    """
    answers = [predictor.predict(asked(row, seen, others)) for row, others in zip(rows, cycle(histories), strict=False)]
    ranks = np.array([rank(answer, row[-1]) for answer, row in zip(answers, rows, strict=True)])
    mean = np.mean([crps(answer, row[-1]) for answer, row in zip(answers, rows, strict=True)])
    return float(mean), float(np.mean((ranks > 0.05) & (ranks < 0.95)))


@pytest.mark.parametrize(("seen", "most"), [(56, 0.016), (60, 0.014), (70, 0.011), (85, 0.008)])
def test_behind_a_step_the_old_part_does_not_mislead(seen: int, most: float) -> None:
    error, inside = scores(GRID, stepped(40, 1), seen, [NOBODY])
    assert error < most
    assert inside >= 0.85


@pytest.mark.merge
@pytest.mark.parametrize(("seen", "most"), [(45, 0.03), (51, 0.025), (60, 0.01)])
def test_others_teach_when_steps_come(seen: int, most: float) -> None:
    error, inside = scores(POOLED, stepped(40, 1), seen, [stepped(10, seed) for seed in range(100, 110)])
    assert error < most
    assert inside >= 0.85


def test_a_loss_that_falls_at_a_milestone_is_the_same_turned_over() -> None:
    for row in stepped(5, 3):
        given = asked(row, 60)
        turned = replace(given, curve=curve(1 - row[:60], ended=False), mode="min")
        up, down = GRID.predict(given), GRID.predict(turned)
        assert down.mean == pytest.approx([1 - value for value in up.mean], abs=1e-6)


def test_what_comes_before_a_step_moves_to_its_level() -> None:
    row = stepped(1, 4)[0][:70]
    moved = without_steps(row)
    assert np.array_equal(moved[60:], row[60:])
    gained = moved[:40] - row[:40]
    assert np.ptp(gained) < 1e-12
    assert gained[0] == pytest.approx(0.16, abs=0.1)
    assert np.abs(np.diff(moved[30:])).max() < 0.1


@pytest.mark.merge
@pytest.mark.parametrize("noise", [0.0, 0.002, 0.01, 0.05])
def test_a_curve_without_steps_stays_as_it_is(noise: float) -> None:
    chance = np.random.default_rng(5)
    rows = smooth(100, chance) + chance.normal(0, 1, (100, LENGTH)) * noise
    sigmoid = 0.1 + 0.8 / (1 + np.exp(-(np.arange(LENGTH) - 50) / 8)) + chance.normal(0, 1, (20, LENGTH)) * noise
    changed = [not np.array_equal(without_steps(row[:seen]), row[:seen]) for row in rows for seen in (20, 60, 100)]
    assert np.mean(changed) <= 0.02
    assert np.mean([not np.array_equal(without_steps(row), row) for row in sigmoid]) <= 0.1


def test_two_steps_are_both_taken_out() -> None:
    axis = np.arange(60)
    row = 0.3 + 0.2 * (axis >= 20) + 0.1 * (axis >= 40) + 0.001 * np.random.default_rng(6).normal(size=60)
    assert np.ptp(without_steps(row)) < 0.02


def test_short_curves_stay_as_they_are() -> None:
    for count in range(1, 15):
        row = np.where(np.arange(count) < count // 2, 0.1, 0.9)
        assert without_steps(row) is row
