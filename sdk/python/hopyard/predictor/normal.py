"""Computes a `Prediction` from the mean and standard deviation of normally distributed reports, for use in predictors."""

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
    """Return the prediction for normally distributed reports, limited to the question's `low` and `high`.

    Args:
        question: The question.
        positions: Future positions as in `Prediction`; if there are none, the prediction is empty.
        mean: The expected value at each position, finite. Values outside the bounds are moved to the bounds.
        deviation: The standard deviation of the expected value at each position, finite, >= 0.
        noise: The standard deviation of a single report around the expected value, finite, >= 0. The variance of a report is the sum
            of the squares of both.
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
    """Return the probability that a report is at least as good as the question's target, which must be set.

    It is 0 or 1 if the question's bounds make the target impossible or certain.

    Args:
        question: The question.
        mean: The expected value of the report.
        spread: The standard deviation of the report; 0: it equals `mean`.
    """
    target = question.target
    assert target is not None
    sign = 1 if question.mode == "max" else -1
    if _bounded(question, target) != target:
        return float(sign * target < sign * _bounded(question, target))
    if target == (question.low if question.mode == "max" else question.high):
        return 1.0
    ahead = sign * (mean - target)
    return NormalDist().cdf(ahead / spread) if spread > 0 else float(ahead >= 0)
