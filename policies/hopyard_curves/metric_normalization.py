"""Converts values of any metric to normalized values: 0 is the worst and 1 the best expected value."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hopyard.predictor import Question

Floats = NDArray[np.float64]

DECADES: Final = 100.0
"""A metric has a logarithmic scale if its distance from zero has decreased by at least this factor without reaching zero."""
MARGIN: Final = 0.5
"""An unknown best value is estimated as the present value plus this fraction of the improvement so far."""
REACH: Final = (-1.0, 2.0)
"""Range to which `Scale.observed` clips normalized values."""
_LEAST: Final = float(np.finfo(np.float64).tiny)
_TAIL: Final = 0.1
_EXPONENT: Final = 600.0


@dataclass(frozen=True, slots=True)
class Scale:
    """A monotone map between metric values and normalized values, where 0 is the worst and 1 the best expected value.

    If both bounds of the metric are known, the map is HyperDrive's equation 4, (value - worst) / (best - worst). The
    metric can be beyond `worst` and `best`, so normalized values can be outside 0..1, but it cannot be beyond `low` and `high`
    (`clipped`).

    Attributes:
        worst: The metric value that is normalized to 0.
        best: The metric value that is normalized to 1; differs from `worst`.
        logarithmic: Whether the map is affine in ln|metric| rather than in the metric; `worst` and `best` then have the
            same sign.
        low: The smallest possible value of the metric; -inf: unknown.
        high: The largest possible value of the metric; inf: unknown.
    """

    worst: float
    best: float
    logarithmic: bool = False
    low: float = -inf
    high: float = inf

    @classmethod
    def of(cls, question: Question, values: Floats) -> Scale:
        """Return the scale of a question's metric.

        `worst` and `best` are the bounds of the metric's range that the question gives (`low`, `high`). A bound that it
        does not give is estimated from `values`. In the following, the sign of the metric is chosen so that larger is
        better. The start is the first value, or the lower decile if that is lower; the top is the last value, or the
        upper decile if that is higher.

        * If start and top are below 0, the magnitude of the start is at least `DECADES` times that of the top, and not
          both bounds are given (perplexities, for example), the scale is logarithmic: `worst` is the start, and `best`
          is the top divided by the square root of worst / top.
        * Otherwise, if all values are within 0..1 (accuracies), `worst` is 0 and `best` is 1.
        * Otherwise `worst` is the start. `best` is 0 if the top is not above 0 (a negated loss), else the top plus half
          of the improvement from `worst` to the top.

        The scale is symmetric: -y with the other mode has the same scale with negated `worst` and `best`. It does not
        depend on the target.

        Args:
            question: The question to the predictor, with the mode and the known bounds of the metric.
            values: The finite values of the curve, at least one, in the order of their positions (`reports.finite`). A
                predictor that reads other curves appends their values.
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
            # A constant curve without known bounds, or known bounds that contradict the metric.
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
        """The change of the metric (if logarithmic, of ln|metric|) from the normalized value 0 to 1, with its sign; not 0."""
        if not self.logarithmic:
            return self.best - self.worst
        ratio = self.best / self.worst
        return log(ratio) if ratio >= _LEAST else log(abs(self.best)) - log(abs(self.worst))

    @property
    def rising(self) -> bool:
        """Whether larger values of the metric are better."""
        return self.best > self.worst

    def to_unit(self, metric: ArrayLike) -> Floats:
        """Convert values of the metric to normalized values.

        If the scale is logarithmic, a value that is zero or does not have the sign of `worst` is converted to inf.
        """
        given = np.asarray(metric, dtype=np.float64)
        if not self.logarithmic:
            return np.asarray((given - self.worst) / self.span)
        ratio = np.maximum(given / self.worst, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(ratio) / self.span)

    def observed(self, metric: ArrayLike) -> Floats:
        """Convert observed values of the metric to normalized values, clipped to -1..2 (`REACH`) to limit the effect of outliers."""
        return np.clip(self.to_unit(metric), *REACH)

    def from_unit(self, units: ArrayLike) -> Floats:
        """Convert normalized values to values of the metric; the inverse of `to_unit`."""
        given = np.asarray(units, dtype=np.float64)
        if not self.logarithmic:
            return np.asarray(self.worst + given * self.span)
        return np.asarray(self.worst * np.exp(np.clip(given * self.span, -_EXPONENT, _EXPONENT)))

    def moments(self, mean: ArrayLike, deviation: ArrayLike) -> tuple[Floats, Floats]:
        """Convert a normal distribution of a normalized value to the distribution of the metric.

        Args:
            mean: The mean of the normal distribution.
            deviation: The standard deviation of the normal distribution.

        Returns:
            Mean and standard deviation of the distribution in the metric, which is log-normal if the scale is
            logarithmic.
        """
        middle, spread = np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64) * abs(self.span)
        if not self.logarithmic:
            return self.from_unit(middle), spread
        variance = np.minimum(spread * spread, _EXPONENT / 2)
        centre = self.from_unit(middle) * np.exp(variance / 2)
        return centre, np.abs(centre) * np.sqrt(np.expm1(variance))

    def clipped(self, metric: ArrayLike) -> Floats:
        """Clip values of the metric to the range from `low` to `high`."""
        return np.clip(np.asarray(metric, dtype=np.float64), self.low, self.high)

    def possible(self, target: float, chances: Floats) -> Floats:
        """Correct the probabilities that a report is at least as good as `target` by the known bounds of the metric.

        Args:
            target: A value of the metric.
            chances: Probabilities from a model that ignores the bounds.

        Returns:
            1 everywhere if the target is not better than the worst possible value, 0 everywhere if it is better than
            the best possible value, else `chances`.
        """
        worst, best = (self.low, self.high) if self.rising else (-self.high, -self.low)
        oriented = target if self.rising else -target
        if oriented <= worst:
            return np.ones_like(chances)
        return np.zeros_like(chances) if oriented > best else chances


def _reached(better: Floats) -> tuple[float, float]:
    """Return the start and the top of a curve, as `Scale.of` defines them.

    Args:
        better: The values of the curve, with the sign chosen so that larger is better.
    """
    low, high = np.quantile(better, (_TAIL, 1 - _TAIL))
    return min(float(better[0]), float(low)), max(float(better[-1]), float(high))


def _within_unit(better: Floats) -> bool:
    return bool(better.min() >= 0 and better.max() <= 1)
