"""Checks whether a prediction is valid: whether it fulfils the contract of `Prediction` and its fields agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from hopyard.errors import InvalidInput
from hopyard.predictor.base import LEVELS, Prediction, Question
from hopyard.predictor.wire import check_prediction

_CLOSE: Final = 1e-9
"""Tolerance for rounding, relative to the compared numbers."""
_DECADES: Final = 1e3


def problems(question: Question, prediction: object) -> list[str]:
    """Return what is invalid in a prediction, one sentence for each problem; empty if it is valid.

    The function does not judge the quality of a prediction.

    Args:
        question: The question.
        prediction: What the predictor returned.
    """
    try:
        answer = check_prediction(prediction, question)
    except InvalidInput as error:
        return [str(error)]
    return [*_beyond(question, answer), *_disagreements(question, answer)] if answer.positions else []


def _beyond(question: Question, answer: Prediction) -> list[str]:
    low = -math.inf if question.low is None else question.low - _CLOSE * abs(question.low)
    high = math.inf if question.high is None else question.high + _CLOSE * abs(question.high)
    found = list[str]()
    for name, column in (("mean", answer.mean), ("final", answer.final)):
        if not low <= min(column) <= max(column) <= high:
            span = f"{min(column):g}..{max(column):g}"
            found.append(f"{name} is {span}, but the metric lies between {question.low} and {question.high}")
    return found


def _disagreements(question: Question, answer: Prediction) -> list[str]:
    found = list[str]()
    least, most, mean = answer.final[0], answer.final[-1], answer.mean[-1]
    room = (most - least) + _CLOSE * max(abs(least), abs(most))
    # If the distribution covers several decades, the mean can lie outside almost all of it.
    decades = least * most > 0 and max(least / most, most / least) > _DECADES
    if not decades and not least - room <= mean <= most + room:
        found.append(f"mean ends with {mean:g}, far outside of final, {least:g}..{most:g}")
    if question.target is not None:
        last, (better, equal) = answer.reaches[-1], _chance(answer.final, question.mode, question.target)
        # `final` has the resolution of one level. Equal quantiles (mass in one point) do not determine the probability.
        step = 2 / len(LEVELS)
        if not better - step <= last <= better + equal + step:
            said = f"by final the chance of {question.target:g} is {better + equal / 2:.3f}"
            found.append(f"reaches ends with {last:.3f}, but {said}")
    return found


def _chance(final: Sequence[float], mode: str, target: float) -> tuple[float, float]:
    """Return the fraction of the quantiles that are better than the target, and the fraction that equal it except for rounding errors.

    Args:
        final: `Prediction.final`.
        mode: Whether larger (max) or smaller (min) values are better.
        target: A value of the metric.
    """
    near = _CLOSE * abs(target)
    equal = sum(abs(value - target) <= near for value in final)
    better = sum(value > target + near if mode == "max" else value < target - near for value in final)
    return better / len(final), equal / len(final)
