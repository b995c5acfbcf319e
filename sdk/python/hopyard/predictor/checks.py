"""Whether a prediction is what `Prediction` promises: shapes, ranges, and that its parts agree with each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from hopyard.predictor.base import LEVELS, Prediction, Question

_CLOSE: Final = 1e-9
"""Rounding, relative to the numbers compared."""
_DECADES: Final = 1e3


def problems(question: Question, prediction: object) -> list[str]:
    """What is wrong with an answer, a sentence each; empty: nothing is.

    How good a prediction is, is not looked at; only whether it can be one.
    """
    if not isinstance(prediction, Prediction):
        return [f"the answer is a {type(prediction).__name__}, and must be a Prediction"]
    found = [*_types(prediction), *_lengths(question, prediction)]
    return found or [*_positions(question, prediction), *_ranges(prediction), *_bounds(question, prediction)]


def _types(prediction: Prediction) -> list[str]:
    found = list[str]()
    for name, kind in (("positions", int), ("mean", float), ("deviation", float), ("reaches", float), ("final", float)):
        column = getattr(prediction, name)
        if not isinstance(column, tuple):
            found.append(f"{name} is a {type(column).__name__}, and must be a tuple")
        elif strange := [value for value in column if not isinstance(value, kind) or isinstance(value, bool)]:
            found.append(f"{name} holds {strange[0]!r}, a {type(strange[0]).__name__}, and must hold {kind.__name__}")
        elif kind is float and (bad := [value for value in column if not math.isfinite(value)]):
            found.append(f"{name} holds {bad[0]}; every number must be finite")
    return found


def _lengths(question: Question, prediction: Prediction) -> list[str]:
    future = len(prediction.positions)
    wanted = {
        "mean": (future, "one for each position"),
        "deviation": (future, "one for each position"),
        "reaches": (future, "one for each position") if question.target is not None else (0, "there is no target"),
        "final": (len(LEVELS), "one for each of LEVELS") if future else (0, "there is no future position"),
    }
    return [
        f"{name} has {len(getattr(prediction, name))} numbers, and must have {count}: {why}"
        for name, (count, why) in wanted.items()
        if len(getattr(prediction, name)) != count
    ]


def _positions(question: Question, prediction: Prediction) -> list[str]:
    now = question.curve.positions[-1] if question.curve.positions else 0
    if now >= question.horizon:
        return [f"positions is not empty, but the curve is at its horizon {now}"] if prediction.positions else []
    if not prediction.positions:
        return [f"positions is empty, but the curve is at {now} and its horizon at {question.horizon}"]
    path = (now, *prediction.positions)
    found = [f"positions go from {a} to {b}; they must rise" for a, b in pairwise(path) if b <= a][:1]
    if path[-1] != question.horizon:
        found.append(f"the last position is {path[-1]}, and must be the horizon {question.horizon}")
    return found


def _ranges(prediction: Prediction) -> list[str]:
    found = [f"deviation holds {one}; it is at least 0" for one in prediction.deviation if one < 0][:1]
    found += [f"reaches holds {one}; a probability is from 0 to 1" for one in prediction.reaches if not 0 <= one <= 1][
        :1
    ]
    found += [f"final falls from {a} to {b}; quantiles do not fall" for a, b in pairwise(prediction.final) if b < a][:1]
    if prediction.final and not found:
        least, most = prediction.final[0], prediction.final[-1]
        room = (most - least) + _CLOSE * max(abs(least), abs(most))
        # Of what spreads over decades the mean may lie beyond nearly all.
        decades = least * most > 0 and max(least / most, most / least) > _DECADES
        if not decades and not least - room <= prediction.mean[-1] <= most + room:
            found.append(f"mean ends with {prediction.mean[-1]}, far outside of final, {least} to {most}")
    return found


def _bounds(question: Question, prediction: Prediction) -> list[str]:
    """Nothing lies beyond `low` and `high`, and the last chance is that of `final`."""
    low = -math.inf if question.low is None else question.low
    high = math.inf if question.high is None else question.high
    found = list[str]()
    for name, column in (("mean", prediction.mean), ("final", prediction.final)):
        beyond = [value for value in column if not _least(low) <= value <= _most(high)]
        found += [f"{name} holds {beyond[0]}, but the metric lies between {low} and {high}"] if beyond else []
    if question.target is None or not prediction.reaches or not prediction.final:
        return found
    target = question.target
    good, equal = _chance(prediction.final, question.mode, target)
    # `final` knows the chance to a level; equal quantiles (mass in one point) leave all of theirs open.
    step = 2 / len(LEVELS)
    last = prediction.reaches[-1]
    if not good - step <= last <= good + equal + step:
        found.append(f"reaches ends with {last:.3f}, but by final the chance of {target} is {good + equal / 2:.3f}")
    return found


def _chance(final: Sequence[float], mode: str, target: float) -> tuple[float, float]:
    """The shares of quantiles that are better than the target, and that are the target up to rounding."""
    near = _CLOSE * max(1.0, abs(target))
    equal = sum(abs(value - target) <= near for value in final)
    better = sum(value > target + near if mode == "max" else value < target - near for value in final)
    return better / len(final), equal / len(final)


def _least(bound: float) -> float:
    return bound if math.isinf(bound) else bound - _CLOSE * max(1.0, abs(bound))


def _most(bound: float) -> float:
    return bound if math.isinf(bound) else bound + _CLOSE * max(1.0, abs(bound))
