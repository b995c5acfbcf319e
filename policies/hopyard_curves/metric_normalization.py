"""Normalizes any metric to an accuracy-like scale: larger is better, about 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hopyard.predictor import Question

Floats = NDArray[np.float64]

DECADES: Final = 100.0
"""A metric on one side of zero that approached it by this factor is treated logarithmically."""
MARGIN: Final = 0.5
"""If the best value is unknown, it is assumed this fraction of the past improvement beyond the present value."""
REACH: Final = (-1.0, 2.0)
"""Range of `Scale.observed`, in units; larger spikes are clipped to it."""
_LEAST: Final = float(np.finfo(np.float64).tiny)
_TAIL: Final = 0.1
_EXPONENT: Final = 600.0


@dataclass(frozen=True, slots=True)
class Scale:
    """A monotone map between a metric and units, where 0 is the worst and 1 the best expected value.

    With both ends known it is HyperDrive's equation 4, reversed if smaller is better. The ends do not limit the metric
    unless they are known limits (`clipped`).

    Attributes:
        worst: The metric at 0 units.
        best: The metric at 1 unit; differs from `worst`.
        logarithmic: The map is affine in ln|metric|; both ends have the same sign.
        low: The smallest possible value of the metric; -inf: unknown.
        high: The largest possible value; inf: unknown.
    """

    worst: float
    best: float
    logarithmic: bool = False
    low: float = -inf
    high: float = inf

    @classmethod
    def of(cls, question: Question, values: Floats) -> Scale:
        """Return the scale of a question's metric.

        Known ends are used. Otherwise, with the metric oriented so that larger is better: values within 0..1 are
        accuracies with the ends 0 and 1. Else the worst end is the first value, or the lower decile of the curve if
        that is lower. The best end is 0 for values below zero (a negated loss), and for other metrics the present value
        plus half of the past improvement. A metric below zero that approached zero by the factor `DECADES`, with at
        most one known end, is treated logarithmically (perplexities, for example); its best end is the known one, or
        half of the past decades further.

        The scale is symmetric: -y with the other mode has the same scale with negated ends. It does not depend on the
        target.

        Args:
            question: The question.
            values: The curve's finite values, at least one, in the order of their positions (`reports.finite`).
        """
        sign = 1.0 if question.mode == "max" else -1.0
        ends = (question.low, question.high) if sign > 0 else (question.high, question.low)
        worst, best = (None if end is None else sign * end for end in ends)
        start, top = _reached(sign * values)
        logarithmic = False
        if top < 0 and start <= DECADES * top and (worst is None or best is None) and (best or 0.0) <= 0:
            logarithmic = True
            worst = start if worst is None else worst
            best = best or min(top * (top / worst) ** MARGIN, -_LEAST)
        elif _within_unit(sign * values):
            worst, best = 0.0 if worst is None else worst, 1.0 if best is None else best
        else:
            worst = start if worst is None else worst
            if best is None:
                best = 0.0 if top <= 0 and worst < 0 else top + MARGIN * (top - worst)
        if not worst < best:
            # A constant curve without known ends, or known ends that contradict the metric.
            best = worst + (abs(worst) or 1.0)
        low, high = question.low, question.high
        return cls(
            sign * worst,
            sign * best,
            logarithmic,
            -inf if low is None else min(low, float(values.min())),
            inf if high is None else max(high, float(values.max())),
        )

    @property
    def span(self) -> float:
        """The improvement over one unit, in the metric or, if logarithmic, in ln|metric|; not 0."""
        if not self.logarithmic:
            return self.best - self.worst
        ratio = self.best / self.worst
        return log(ratio) if ratio >= _LEAST else log(abs(self.best)) - log(abs(self.worst))

    @property
    def rising(self) -> bool:
        """Whether larger values of the metric are more units."""
        return self.best > self.worst

    def to_unit(self, metric: ArrayLike) -> Floats:
        """Convert the metric to units; values outside the logarithm's domain are inf (-inf does not occur)."""
        given = np.asarray(metric, dtype=np.float64)
        if not self.logarithmic:
            return np.asarray((given - self.worst) / self.span)
        ratio = np.maximum(given / self.worst, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(ratio) / self.span)

    def observed(self, metric: ArrayLike) -> Floats:
        """Convert observed values to units, clipped to `REACH`, so that an outlier of 10^30 has a limited effect."""
        return np.clip(self.to_unit(metric), *REACH)

    def from_unit(self, units: ArrayLike) -> Floats:
        """Convert units to the metric."""
        given = np.asarray(units, dtype=np.float64)
        if not self.logarithmic:
            return np.asarray(self.worst + given * self.span)
        return np.asarray(self.worst * np.exp(np.clip(given * self.span, -_EXPONENT, _EXPONENT)))

    def moments(self, mean: ArrayLike, deviation: ArrayLike) -> tuple[Floats, Floats]:
        """Return mean and standard deviation in the metric of a normal distribution given in units."""
        middle, spread = np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64) * abs(self.span)
        if not self.logarithmic:
            return self.from_unit(middle), spread
        variance = np.minimum(spread * spread, _EXPONENT / 2)
        centre = self.from_unit(middle) * np.exp(variance / 2)
        return centre, np.abs(centre) * np.sqrt(np.expm1(variance))

    def clipped(self, metric: ArrayLike) -> Floats:
        """Clip values of the metric to its known limits."""
        return np.clip(np.asarray(metric, dtype=np.float64), self.low, self.high)

    def possible(self, target: float, chances: Floats) -> Floats:
        """Correct the probabilities of reaching `target` by the known limits of the metric: 0 if impossible, 1 if certain."""
        worst, best = (self.low, self.high) if self.rising else (-self.high, -self.low)
        oriented = target if self.rising else -target
        if oriented <= worst:
            return np.ones_like(chances)
        return np.zeros_like(chances) if oriented > best else chances


def _reached(better: Floats) -> tuple[float, float]:
    """Return the start and the present value of a curve, robust against spikes; larger is better."""
    low, high = np.quantile(better, (_TAIL, 1 - _TAIL))
    return min(float(better[0]), float(low)), max(float(better[-1]), float(high))


def _within_unit(better: Floats) -> bool:
    return bool(better.min() >= 0 and better.max() <= 1)
