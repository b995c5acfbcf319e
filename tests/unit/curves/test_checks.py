"""What makes an answer one that cannot be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hopyard.predictor import LEVELS, Prediction, Question
from hopyard.predictor.checks import problems
from hopyard.predictor.testing import curve

ASKED = Question(curve([0.4, 0.5]), 4, target=0.6, low=0.0, high=1.0)
SOUND = Prediction((3, 4), (0.5, 0.5), (0.1, 0.2), (0.2, 0.4), LEVELS)


def test_a_sound_answer_has_no_problems() -> None:
    assert problems(ASKED, SOUND) == []
    assert problems(replace(ASKED, target=None), replace(SOUND, reaches=())) == []
    assert problems(replace(ASKED, horizon=2), Prediction((), (), ())) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"mean": [0.5, 0.5]}, "mean is a list, and must be a tuple"),
        ({"positions": (3.0, 4.0)}, "positions holds 3.0, a float, and must hold int"),
        ({"positions": (np.int64(3), 4)}, "a int64, and must hold int"),
        ({"deviation": (0.1, np.float32(0.2))}, "a float32, and must hold float"),
        ({"deviation": (0.1, True)}, "deviation holds True, a bool, and must hold float"),
        ({"mean": (0.5, float("nan"))}, "mean holds nan; every number must be finite"),
        ({"mean": (0.5,)}, "mean has 1 numbers, and must have 2: one for each position"),
        ({"reaches": ()}, "reaches has 0 numbers, and must have 2"),
        ({"final": LEVELS[:99]}, "final has 99 numbers, and must have 100: one for each of LEVELS"),
        ({"positions": (2, 4)}, "positions go from 2 to 2; they must rise"),
        ({"positions": (3, 5)}, "the last position is 5, and must be the horizon 4"),
        ({"deviation": (0.1, -0.2)}, "deviation holds -0.2; it is at least 0"),
        ({"reaches": (0.2, 1.01)}, "reaches holds 1.01; a probability is from 0 to 1"),
        ({"final": LEVELS[::-1]}, "final falls from 0.995 to 0.985; quantiles do not fall"),
        ({"mean": (0.5, -0.5)}, "mean holds -0.5, but the metric lies between 0.0 and 1.0"),
        ({"final": tuple(2 * level for level in LEVELS)}, "but the metric lies between 0.0 and 1.0"),
        ({"reaches": (0.2, 0.6)}, "reaches ends with 0.600, but by final the chance of 0.6 is 0.400"),
    ],
)
def test_problems_are_named(change: dict[str, Any], problem: str) -> None:
    assert problem in "; ".join(problems(ASKED, replace(SOUND, **change)))


def test_a_mean_in_another_unit_is_found_without_bounds() -> None:
    free = replace(ASKED, low=None, high=None)
    assert problems(free, replace(SOUND, mean=(50.0, 50.0))) == [
        "mean ends with 50.0, far outside of final, 0.005 to 0.995"
    ]


def test_the_mean_of_what_spreads_over_decades_may_lie_beyond() -> None:
    free = replace(ASKED, low=None, high=None, target=None)
    wide = tuple(10 ** (8 * level) for level in LEVELS)
    assert problems(free, replace(SOUND, mean=(1e9, 1e9), reaches=(), final=wide)) == []


def test_chances_are_loose_where_quantiles_are_equal() -> None:
    flat = replace(SOUND, mean=(0.6, 0.6), final=(0.6,) * 100)
    for chance in (0.0, 0.5, 1.0):
        assert problems(ASKED, replace(flat, reaches=(0.5, chance))) == []


def test_there_is_nothing_to_say_at_the_horizon_and_something_before() -> None:
    assert "at its horizon 2" in problems(replace(ASKED, horizon=2), SOUND)[0]
    assert "positions is empty, but the curve is at 2" in problems(ASKED, Prediction((), (), ()))[0]
    assert problems(ASKED, None) == ["the answer is a NoneType, and must be a Prediction"]
