"""Tests of the synthetic curves and of the scores."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hopyard.predictor import LEVELS, Prediction, Question
from hopyard.predictor.testing import EPOCHS, FAMILIES, CurveFamily, crps, curve, mirrored, rank, scaled

pytestmark = pytest.mark.quick


def said(final: list[float]) -> Prediction:
    return Prediction((60,), (0.0,), (0.0,), final=tuple(final))


def test_the_score_of_a_point_is_its_distance() -> None:
    assert crps(said([0.3] * 100), 0.5) == pytest.approx(0.2)


def test_the_score_of_a_uniform_distribution() -> None:
    # The integral of (F - 1[x >= truth])^2 over 0..1 is truth^3/3 + (1 - truth)^3/3.
    for truth in (0.0, 0.3, 1.0):
        assert crps(said(list(LEVELS)), truth) == pytest.approx((truth**3 + (1 - truth) ** 3) / 3, abs=1e-4)


def test_ranks() -> None:
    assert rank(said(list(LEVELS)), 0.25) == pytest.approx(0.25)
    assert rank(said([0.5] * 100), 0.5) == 0.5
    assert (rank(said([0.5] * 100), 0.4), rank(said([0.5] * 100), 0.6)) == (0.0, 1.0)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_families_are_what_they_say(family: CurveFamily) -> None:
    curves = family.curves(200, seed=1)
    assert curves.shape == (200, EPOCHS)
    assert np.array_equal(curves, family.curves(200, seed=1))
    assert not np.array_equal(curves, family.curves(200, seed=2))
    low = -math.inf if family.low is None else family.low
    high = math.inf if family.high is None else family.high
    assert low <= curves.min() <= curves.max() <= high
    better = curves[:, -5:].mean(axis=1) - curves[:, :3].mean(axis=1)
    assert np.mean((better if family.mode == "max" else -better) > 0) > 0.85


def test_a_mirrored_question_turned_back_is_the_same() -> None:
    other = curve([0.25, 0.375], ended=True)
    question = Question(curve([0.125, 0.25]), 9, target=0.5, low=0.0, high=1.0, others=(other,), earlier=(other,))
    turned = mirrored(question)
    assert (turned.mode, turned.target, turned.low, turned.high) == ("min", -0.5, -1.0, 0.0)
    assert turned.others[0].values == turned.earlier[0].values == (-0.25, -0.375)
    assert mirrored(turned) == question
    assert scaled(scaled(question, 4.0, 8.0), 0.25, -2.0) == question
