"""Tools for tests of predictors: random curves whose ends are known, and scores of predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from hopyard.predictor.base import LEVELS, Curve, Prediction, Question

Floats = NDArray[np.float64]

EPOCHS: Final = 60
"""Number of reports in a complete curve, at positions 1, 2, ..."""


@dataclass(frozen=True, slots=True)
class CurveFamily:
    """A family of random learning curves.

    Attributes:
        name: The name of the family.
        draw: Function that creates the reports of one curve from a random generator: shape (EPOCHS,), all finite. EPOCHS is a
            constant of this module.
        mode: Whether larger (max) or smaller (min) values are better.
        low: The smallest possible value of the metric; None: not known.
        high: The largest possible value of the metric; None: not known.
    """

    name: str
    draw: Callable[[np.random.Generator], Floats]
    mode: Literal["max", "min"] = "max"
    low: float | None = None
    high: float | None = None

    def curves(self, count: int, seed: int) -> Floats:
        """Return `count` random complete curves, clipped to the bounds; shape (count, EPOCHS). Equal seeds give equal curves."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        drawn = np.array([self.draw(rng) for _ in range(count)])
        return np.clip(drawn, self.low, self.high) if (self.low, self.high) != (None, None) else drawn

    def question(self, values: Floats, seen: int) -> Question:
        """Return a question with the beginning of a curve; its horizon is the end of the curve.

        Args:
            values: The reports of the complete curve.
            seen: Number of reports that the question contains.
        """
        return Question(curve(values[:seen]), EPOCHS, mode=self.mode, low=self.low, high=self.high)


def curve(values: Sequence[float] | Floats, every: int = 1, ended: bool = False) -> Curve:
    """Return a curve without hyperparameters.

    Args:
        values: The reports.
        every: The distance between reports: the positions are every, 2 every, ...
        ended: Whether the job has ended.
    """
    positions = tuple(range(every, every * len(values) + 1, every))
    return Curve(positions, tuple(float(value) for value in values), ended=ended)


def mirrored(question: Question) -> Question:
    """Return the same question for the negative of the metric, with the opposite mode."""
    turned = scaled(question, -1.0, 0.0)
    return replace(turned, mode="min" if question.mode == "max" else "max", low=turned.high, high=turned.low)


def scaled(question: Question, factor: float, shift: float) -> Question:
    """Return the same question for the metric `factor` * metric + `shift`, with all curves, the target and the bounds converted."""

    def moved(value: float | None) -> float | None:
        return None if value is None else factor * value + shift

    def changed(one: Curve) -> Curve:
        return replace(one, values=tuple(factor * value + shift for value in one.values))

    return replace(
        question,
        curve=changed(question.curve),
        others=tuple(changed(one) for one in question.others),
        earlier=tuple(changed(one) for one in question.earlier),
        target=moved(question.target),
        low=moved(question.low),
        high=moved(question.high),
    )


def crps(prediction: Prediction, truth: float) -> float:
    """Return the continuous ranked probability score (CRPS) of `prediction.final`; smaller is better.

    Args:
        prediction: The prediction.
        truth: The value that was reported at the horizon.
    """
    levels, off = np.asarray(LEVELS), truth - np.asarray(prediction.final)
    return float(2 * np.mean(np.where(off > 0, levels * off, (levels - 1) * off)))


def rank(prediction: Prediction, truth: float) -> float:
    """Return the rank of the true value in the prediction: the fraction of `prediction.final` below it; equal quantiles count as half.

    For calibrated predictions, the ranks of many true values are uniformly distributed in [0, 1].

    Args:
        prediction: The prediction.
        truth: The value that was reported at the horizon.
    """
    final = np.asarray(prediction.final)
    return float((np.mean(final < truth) + np.mean(final <= truth)) / 2)


_AXIS: Final = np.arange(1, EPOCHS + 1, dtype=np.float64)


def _rising(rng: np.random.Generator) -> Floats:
    """Return a random accuracy curve that approaches its limit by a power law."""
    start, end = rng.uniform(0.05, 0.3), rng.uniform(0.5, 0.95)
    return end - (end - start) * _AXIS ** -rng.uniform(0.3, 1.2) + rng.normal(0, rng.uniform(0.003, 0.02), EPOCHS)


def _levelling(rng: np.random.Generator) -> Floats:
    """Return a random accuracy curve that soon reaches its limit. One in five stays at its start."""
    start, end = rng.uniform(0.1, 0.2), rng.uniform(0.3, 0.9)
    end = start if rng.random() < 0.2 else end
    rise = 1 - np.exp(-(_AXIS - 1) / rng.uniform(2, 12))
    return start + (end - start) * rise + rng.normal(0, rng.uniform(0.003, 0.02), EPOCHS)


def _falling(rng: np.random.Generator) -> Floats:
    """Return a random loss curve with noise proportional to its value."""
    start, floor = rng.uniform(1.5, 3.0), rng.uniform(0.05, 0.8)
    fall = floor + (start - floor) * np.exp(-((_AXIS / rng.uniform(4, 25)) ** rng.uniform(0.5, 1.0)))
    return fall * np.exp(rng.normal(0, rng.uniform(0.01, 0.04), EPOCHS))


def _rewarded(rng: np.random.Generator) -> Floats:
    """Return a random reward curve between -500 and 300 that rises at a random time and has strong noise."""
    start, end = rng.uniform(-450, -250), rng.uniform(-150, 250)
    learnt = 1 / (1 + np.exp(-(_AXIS - rng.uniform(5, 40)) / rng.uniform(2, 8)))
    return start + (end - start) * learnt + rng.normal(0, rng.uniform(10, 40), EPOCHS)


FAMILIES: Final = (
    CurveFamily("rising accuracies", _rising, low=0.0, high=1.0),
    CurveFamily("accuracies that level off", _levelling, low=0.0, high=1.0),
    CurveFamily("falling losses", _falling, mode="min", low=0.0),
    CurveFamily("rewards", _rewarded, low=-500.0, high=300.0),
)
"""The families on which predictors are scored."""
