"""Tests of the checks that find impossible predictions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hopyard.predictor import LEVELS, Prediction, Question
from hopyard.predictor.checks import problems
from hopyard.predictor.testing import curve

pytestmark = pytest.mark.quick

ASKED = Question(curve([0.4, 0.5]), 4, target=0.6, low=0.0, high=1.0)
SOUND = Prediction((3, 4), (0.5, 0.5), (0.1, 0.2), (0.2, 0.4), LEVELS)


def test_a_sound_answer_has_no_problems() -> None:
    assert problems(ASKED, SOUND) == []
    assert problems(replace(ASKED, target=None), replace(SOUND, reaches=())) == []
    assert problems(replace(ASKED, horizon=2), Prediction((), (), ())) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"positions": (2, 4)}, "positions must rise from above 2 to the horizon 4, found 2..4"),
        ({"mean": (0.5, float("nan"))}, "mean must be finite, found nan"),
        ({"final": LEVELS[:99]}, "final must be 100 numbers, found 99"),
        ({"mean": (0.5, -0.5)}, "mean is -0.5..0.5, but the metric lies between 0.0 and 1.0"),
        (
            {"final": tuple(2 * level for level in LEVELS)},
            "final is 0.01..1.99, but the metric lies between 0.0 and 1.0",
        ),
        ({"reaches": (0.2, 0.6)}, "reaches ends with 0.600, but by final the chance of 0.6 is 0.400"),
    ],
)
def test_problems_are_named(change: dict[str, Any], problem: str) -> None:
    assert problem in "; ".join(problems(ASKED, replace(SOUND, **change)))


def test_a_mean_in_another_unit_is_found_without_bounds() -> None:
    free = replace(ASKED, low=None, high=None)
    assert problems(free, replace(SOUND, mean=(50.0, 50.0))) == [
        "mean ends with 50, far outside of final, 0.005..0.995"
    ]


def test_the_mean_of_what_spreads_over_decades_may_lie_beyond() -> None:
    free = replace(ASKED, low=None, high=None, target=None)
    wide = tuple(10 ** (8 * level) for level in LEVELS)
    assert problems(free, replace(SOUND, mean=(1e9, 1e9), reaches=(), final=wide)) == []


def test_chances_are_loose_where_quantiles_are_equal() -> None:
    flat = replace(SOUND, mean=(0.6, 0.6), final=(0.6,) * 100)
    for chance in (0.0, 0.5, 1.0):
        assert problems(ASKED, replace(flat, reaches=(0.5, chance))) == []


def test_what_is_no_prediction_is_named() -> None:
    assert problems(ASKED, None) == ["predict returned NoneType; a hopyard.predictor.Prediction is needed"]
