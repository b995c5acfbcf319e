"""Tests of questions and predictions as JSON, and of the checks of a predictor's answer."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.errors import InvalidInput
from hopyard.predictor import LEVELS, Curve, Prediction, Question
from hopyard.predictor.wire import (
    check_prediction,
    prediction_from_wire,
    prediction_to_wire,
    question_from_json,
    question_to_json,
)

pytestmark = pytest.mark.quick

QUESTION = Question(Curve((1, 2), (0.1, 0.2), {"lr": 0.1, "layers": [1, 2]}), horizon=4, target=0.5)
PREDICTION = Prediction((3, 4), (0.3, 0.4), (0.1, 0.2), (0.0, 0.25), tuple(LEVELS))

numbers = st.floats(allow_nan=True, allow_infinity=True)
curves = st.lists(numbers, max_size=5).map(lambda values: Curve(tuple(range(1, len(values) + 1)), tuple(values)))


@pytest.mark.merge
@given(curves, st.lists(curves, max_size=3), st.none() | st.floats(allow_nan=False, allow_infinity=False))
def test_a_question_comes_back_as_it_was(curve: Curve, others: list[Curve], target: float | None) -> None:
    question = replace(QUESTION, curve=curve, others=tuple(others), target=target, mode="min", low=-1.0, seed=2**63 - 1)
    assert repr(question_from_json(question_to_json(question))) == repr(question)


def test_a_prediction_comes_back_as_it_was() -> None:
    assert prediction_from_wire(json.loads(json.dumps(prediction_to_wire(PREDICTION)))) == PREDICTION
    assert prediction_from_wire(prediction_to_wire(Prediction((), (), ()))) == Prediction((), (), ())


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"curve": 3}', '{"curve": {"positions": [], "values": ["x"]}}'])
def test_what_is_no_question_is_told(text: str) -> None:
    with pytest.raises(InvalidInput, match="no question"):
        question_from_json(text)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "a prediction is a mapping, found NoneType"),
        ({}, "positions: whole numbers are needed, found None"),
        ({"positions": [1.5]}, "positions: whole numbers are needed"),
        ({"positions": [1], "mean": ["x"]}, "mean: numbers are needed"),
        ({"positions": [1], "mean": 3}, "mean: numbers are needed"),
        ({"positions": [1], "mean": [10**400]}, "mean: found an integer that a double cannot hold"),
    ],
)
def test_what_is_no_prediction_is_told(found: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        prediction_from_wire(found)


def test_an_answer_gets_pythons_own_numbers() -> None:
    mean: Any = numpy.array([0.3, 0.4])
    positions: Any = numpy.array([3, 4])
    strange = Prediction(tuple(positions), mean, (0.1, 0.2), (-1e-12, 1 + 1e-12), tuple(LEVELS))
    found = check_prediction(strange, QUESTION)
    assert found == replace(PREDICTION, reaches=(0.0, 1.0))
    assert type(found.positions[0]) is int
    assert type(found.mean[0]) is float


def test_a_curve_at_its_horizon_has_nothing_to_predict() -> None:
    at_end = replace(QUESTION, horizon=2)
    assert check_prediction(Prediction((), (), ()), at_end) == Prediction((), (), ())
    with pytest.raises(InvalidInput, match=r"found none"):
        check_prediction(Prediction((), (), ()), QUESTION)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"positions": (2, 4)}, r"positions must rise from above 2 to the horizon 4, found 2..4 \(2\)"),
        ({"positions": (4, 3)}, "positions must rise"),
        ({"positions": (3, 5)}, "positions must rise"),
        ({"mean": (0.3,)}, "mean must be 2 numbers, found 1"),
        ({"mean": (0.3, math.nan)}, "mean must be finite, found nan"),
        ({"mean": "ab"}, "mean must be 2 numbers, found 'ab'"),
        ({"deviation": (0.1, -0.1)}, "deviation must be >= 0, found -0.1"),
        ({"reaches": ()}, "reaches must be 2 numbers, found 0"),
        ({"reaches": (0.5, 1.5)}, r"reaches are chances in 0..1, found 0.5..1.5"),
        ({"final": tuple(reversed(LEVELS))}, "final are quantiles, which never fall"),
        ({"final": LEVELS[1:]}, "final must be 100 numbers, found 99"),
    ],
)
def test_a_broken_promise_is_told(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        check_prediction(replace(PREDICTION, **changes), QUESTION)  # type: ignore[arg-type]


def test_without_a_target_there_are_no_chances() -> None:
    question = replace(QUESTION, target=None)
    assert check_prediction(replace(PREDICTION, reaches=()), question).reaches == ()
    with pytest.raises(InvalidInput, match="reaches must be 0 numbers, found 2"):
        check_prediction(PREDICTION, question)


def test_what_is_no_prediction_at_all_is_told() -> None:
    with pytest.raises(InvalidInput, match=r"predict returned dict; a .* is needed"):
        check_prediction({"mean": 1}, QUESTION)
