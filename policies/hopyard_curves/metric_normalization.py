"""Any metric as an accuracy: larger is better, and about 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hopyard.predictor import Question

Floats = NDArray[np.float64]

DECADES: Final = 100.0
"""A metric on one side of zero that came this many times nearer to it is seen in its logarithm."""
MARGIN: Final = 0.5
"""Where nothing says how good a metric can get: this much of the way it has come lies still before it."""
REACH: Final = (-1.0, 2.0)
"""Units that `Scale.observed` gives: a spike beyond counts as one of these."""
_LEAST: Final = float(np.finfo(np.float64).tiny)
_TAIL: Final = 0.1
_EXPONENT: Final = 600.0


@dataclass(frozen=True, slots=True)
class Scale:
    """A monotone map between a metric and units, of which 0 is the worst and 1 the best that is expected.

    With both ends known it is HyperDrive's equation 4, turned over where smaller is better. The ends are no limits of what
    the metric can be, unless they are known (`clipped`).

    Attributes:
        worst: The metric at 0 units.
        best: The metric at 1 unit; it differs from `worst`.
        logarithmic: The map is affine in ln|metric|; both ends are then on the same side of zero.
        low: The smallest value that the metric can have; -inf: not known.
        high: The largest one; inf: not known.
    """

    worst: float
    best: float
    logarithmic: bool = False
    low: float = -inf
    high: float = inf

    @classmethod
    def of(cls, question: Question, values: Floats) -> Scale:
        """The scale of a question's metric.

        An end that is known holds. Otherwise, with "better" upward: values that all lie in 0..1 are accuracies, whose ends are
        0 and 1. Else the worst is what the curve began with, or what a tenth of it is worse than. The best is 0 for what
        stays below (a loss, turned over), and what the curve has come to and half that way again for other metrics. A metric
        below zero that has come `DECADES` times nearer to it, with at most one end known, is seen in its logarithm, whose best
        is the known one, or half of the way in decades further: so are perplexities.

        The scale turns with the metric: that of -y with the other mode is the same, with its ends negated. It does not
        depend on the target.

        Args:
            question: What is asked.
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
            # One level and nothing else known, or ends that are not the metric's.
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
        """How much better the metric gets over a unit, in the metric or, where the map is logarithmic, in ln|metric|; not 0."""
        if not self.logarithmic:
            return self.best - self.worst
        ratio = self.best / self.worst
        return log(ratio) if ratio >= _LEAST else log(abs(self.best)) - log(abs(self.worst))

    @property
    def rising(self) -> bool:
        """Whether larger values of the metric are more units."""
        return self.best > self.worst

    def to_unit(self, metric: ArrayLike) -> Floats:
        """Units of values of the metric; what a logarithm cannot reach is inf units (-inf never comes)."""
        given = np.asarray(metric, dtype=np.float64)
        if not self.logarithmic:
            return np.asarray((given - self.worst) / self.span)
        ratio = np.maximum(given / self.worst, 0.0)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(ratio) / self.span)

    def observed(self, metric: ArrayLike) -> Floats:
        """Units of values that were seen, none beyond `REACH`: a crash to 10^30 is a crash and no more."""
        return np.clip(self.to_unit(metric), *REACH)

    def from_unit(self, units: ArrayLike) -> Floats:
        """The metric at given units."""
        given = np.asarray(units, dtype=np.float64)
        if not self.logarithmic:
            return np.asarray(self.worst + given * self.span)
        return np.asarray(self.worst * np.exp(np.clip(given * self.span, -_EXPONENT, _EXPONENT)))

    def moments(self, mean: ArrayLike, deviation: ArrayLike) -> tuple[Floats, Floats]:
        """Mean and standard deviation in the metric of what is normal in units with these."""
        middle, spread = np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64) * abs(self.span)
        if not self.logarithmic:
            return self.from_unit(middle), spread
        variance = np.minimum(spread * spread, _EXPONENT / 2)
        centre = self.from_unit(middle) * np.exp(variance / 2)
        return centre, np.abs(centre) * np.sqrt(np.expm1(variance))

    def clipped(self, metric: ArrayLike) -> Floats:
        """Values of the metric, none beyond what it is known to have."""
        return np.clip(np.asarray(metric, dtype=np.float64), self.low, self.high)

    def possible(self, target: float, chances: Floats) -> Floats:
        """Chances of reaching `target`: 0 where the metric is known to stay short of it, 1 where it cannot fall short."""
        worst, best = (self.low, self.high) if self.rising else (-self.high, -self.low)
        oriented = target if self.rising else -target
        if oriented <= worst:
            return np.ones_like(chances)
        return np.zeros_like(chances) if oriented > best else chances


def _reached(better: Floats) -> tuple[float, float]:
    """Where a curve began and what it has come to, single spikes left out; better is larger."""
    low, high = np.quantile(better, (_TAIL, 1 - _TAIL))
    return min(float(better[0]), float(low)), max(float(better[-1]), float(high))


def _within_unit(better: Floats) -> bool:
    return bool(better.min() >= 0 and better.max() <= 1)
