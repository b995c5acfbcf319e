"""Predictions whose reports are normally distributed: for predictors that come to a mean and a spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

from hopyard.predictor.base import LEVELS, Prediction, Question

_STANDARD: Final = tuple(NormalDist().inv_cdf(level) for level in LEVELS)


def normal(
    question: Question, positions: Sequence[int], mean: Sequence[float], deviation: Sequence[float], noise: float
) -> Prediction:
    """The prediction of normal reports, with nothing beyond the question's `low` and `high`.

    Args:
        question: What was asked.
        positions: Future ones, as `Prediction` has them; none: the prediction is empty.
        mean: The expected value at each, finite; what lies beyond a bound is moved to it.
        deviation: The standard deviation of that, finite, >= 0.
        noise: The standard deviation of a single report beside it, finite, >= 0.
    """
    if not positions:
        return Prediction((), (), ())
    spread = [math.hypot(one, noise) for one in deviation]
    return Prediction(
        tuple(positions),
        tuple(_bounded(question, one) for one in mean),
        tuple(map(float, deviation)),
        tuple(_chance(question, *one) for one in zip(mean, spread, strict=True)) if question.target is not None else (),
        tuple(_bounded(question, mean[-1] + spread[-1] * one) for one in _STANDARD),
    )


def _bounded(question: Question, value: float) -> float:
    low = -math.inf if question.low is None else question.low
    high = math.inf if question.high is None else question.high
    return float(min(max(value, low), high))


def _chance(question: Question, mean: float, spread: float) -> float:
    """The chance of the target; what the bounds rule out, or leave no choice about, is 0 or 1."""
    target = question.target
    assert target is not None
    sign = 1 if question.mode == "max" else -1
    if _bounded(question, target) != target:
        return float(sign * target < sign * _bounded(question, target))
    if target == (question.low if question.mode == "max" else question.high):
        return 1.0
    ahead = sign * (mean - target)
    return NormalDist().cdf(ahead / spread) if spread > 0 else float(ahead >= 0)
