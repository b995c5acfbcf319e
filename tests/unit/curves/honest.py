"""A simple correct predictor: the last value, with the spread of a random walk that has the curve's own step sizes."""

from __future__ import annotations

from itertools import pairwise
from statistics import NormalDist
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hopyard.predictor import LEVELS, NotPredictableError, Prediction, Predictor, Question

Floats = NDArray[np.float64]
_NORMAL = NormalDist()
_QUANTILES = np.array([_NORMAL.inv_cdf(level) for level in LEVELS])


class RandomWalk(Predictor):
    """A correct predictor, the base class of the defective ones in `broken`."""

    def predict(self, question: Question) -> Prediction:
        positions, values = self.reports(question)
        ahead = self.future(question)
        if not ahead:
            return Prediction((), (), ())
        last, rate = self.state(question, positions, values)
        low = -np.inf if question.low is None else question.low
        high = np.inf if question.high is None else question.high
        spread = np.sqrt(rate * (np.asarray(ahead) - question.curve.positions[-1]))
        mean = np.full(len(ahead), np.clip(last, low, high))
        return Prediction(
            ahead,
            tuple(mean.tolist()),
            tuple(spread.tolist()),
            self.reaches(question, last, spread),
            tuple(np.clip(last + spread[-1] * _QUANTILES, low, high).tolist()),
        )

    def reports(self, question: Question) -> tuple[Floats, Floats]:
        positions, values = np.asarray(question.curve.positions, dtype=float), np.asarray(question.curve.values)
        kept = np.isfinite(values)
        if not kept.any():
            raise NotPredictableError("the curve has no finite value")
        return positions[kept], values[kept]

    def future(self, question: Question) -> tuple[int, ...]:
        positions = question.curve.positions
        if positions[-1] >= question.horizon:
            return ()
        step = max(1, int(np.median(np.diff(positions, prepend=0))))
        return (*range(positions[-1] + step, question.horizon, step), question.horizon)

    def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
        """Return the last value and the variance that the walk gains with each position."""
        if question.low is not None and question.high is not None:
            size = question.high - question.low
        else:
            size = max(float(np.ptp(values)), abs(float(values[-1])), 1e-6)
        # One assumed further step avoids overconfidence with few reports.
        steps = np.square(np.diff(values)).sum() + (size / 20) ** 2
        return float(values[-1]), float(steps / max(1.0, float(positions[-1] - positions[0])))

    def reaches(self, question: Question, last: float, spread: Floats) -> tuple[float, ...]:
        if question.target is None:
            return ()
        low, high, target = question.low, question.high, question.target
        missed, sure = (high, low) if question.mode == "max" else (low, high)
        sign = 1.0 if question.mode == "max" else -1.0
        if missed is not None and sign * target > sign * missed:
            return (0.0,) * len(spread)
        if sure is not None and sign * target <= sign * sure:
            return (1.0,) * len(spread)
        return tuple(_NORMAL.cdf(sign * (last - target) / one) for one in spread.tolist())


class Pooled(RandomWalk):
    """A random walk whose step size is estimated from all curves."""

    reads: ClassVar[Literal["nothing", "curves"]] = "curves"

    def state(self, question: Question, positions: Floats, values: Floats) -> tuple[float, float]:
        last, rate = super().state(question, positions, values)
        gained, lasted = [rate], [1.0]
        for other in question.others:
            finite = [
                (at, value) for at, value in zip(other.positions, other.values, strict=True) if np.isfinite(value)
            ]
            for (before, old), (after, new) in pairwise(finite):
                gained.append((new - old) ** 2)
                lasted.append(float(after - before))
        # Diverged curves must not influence this one, so it takes the median, not the mean.
        pooled = float(np.median(np.asarray(gained) / np.asarray(lasted)))
        share = 1 / (1 + len(question.others) / 4)
        return last, max(share * rate + (1 - share) * pooled, rate / 4)
