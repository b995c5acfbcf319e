"""Tests of predictions that are made from a mean and a spread."""

from __future__ import annotations

from statistics import NormalDist
from typing import Literal

import pytest

from hopyard.predictor import LEVELS, Prediction, Question
from hopyard.predictor.checks import problems
from hopyard.predictor.normal import normal
from hopyard.predictor.testing import curve, mirrored

pytestmark = pytest.mark.quick

SEEN = curve([0.4, 0.5, 0.6])


def test_noise_and_doubt_add_up() -> None:
    question = Question(SEEN, 5, target=1.0)
    answer = normal(question, (4, 5), (0.7, 0.8), (0.3, 0.6), 0.8)
    assert problems(question, answer) == []
    assert (answer.mean, answer.deviation) == ((0.7, 0.8), (0.3, 0.6))
    assert answer.reaches[1] == pytest.approx(1 - NormalDist(0.8, 1.0).cdf(1.0))
    assert answer.final == pytest.approx([NormalDist(0.8, 1.0).inv_cdf(level) for level in LEVELS])


def test_nothing_lies_beyond_the_bounds() -> None:
    question = Question(SEEN, 4, low=0.0, high=0.65, target=0.64)
    answer = normal(question, (4,), (0.7,), (0.5,), 0.0)
    assert problems(question, answer) == []
    assert (answer.mean, answer.final[0], answer.final[-1]) == ((0.65,), 0.0, 0.65)


@pytest.mark.parametrize("mode", ["max", "min"])
@pytest.mark.parametrize(
    ("target", "chance"), [(0.0, 1.0), (-0.1, 1.0), (1.1, 0.0), (0.5, 0.5), (1.0, 1 - NormalDist(0.5, 0.25).cdf(1.0))]
)
def test_what_bounds_rule_out_has_no_chance(mode: Literal["max", "min"], target: float, chance: float) -> None:
    question = Question(SEEN, 4, low=0.0, high=1.0, target=target)
    mean = 0.5
    if mode == "min":
        question, mean = mirrored(question), -0.5
    answer = normal(question, (4,), (mean,), (0.25,), 0.0)
    assert answer.reaches == pytest.approx((chance,))
    assert problems(question, answer) == []


def test_without_any_spread_it_is_sure() -> None:
    for target, chance in ((0.7, 1.0), (0.8, 0.0), (0.6, 1.0)):
        question = Question(SEEN, 4, target=target)
        answer = normal(question, (4,), (0.7,), (0.0,), 0.0)
        assert answer.reaches == (chance,)
        assert set(answer.final) == {0.7}
        assert problems(question, answer) == []


def test_nothing_ahead_nothing_predicted() -> None:
    assert normal(Question(SEEN, 3, target=0.5), (), (), (), 0.1) == Prediction((), (), ())
