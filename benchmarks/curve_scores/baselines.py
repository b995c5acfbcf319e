"""Baselines that predictors must beat. Each is a predictor, so all are scored in the same way. Larger values count as better."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt

from hopyard.predictor import LEVELS, Prediction, Predictor, Question

Floats = npt.NDArray[np.float64]

_NORMAL: Final = np.asarray([NormalDist().inv_cdf(level) for level in LEVELS])


class _Drawn(Predictor):
    """Base class of baselines whose prediction is a set of equally likely curves."""

    def futures(self, question: Question, positions: tuple[int, ...]) -> Floats:
        """Return the equally likely values at `positions`, as an array of shape (curves, positions)."""
        raise NotImplementedError

    def predict(self, question: Question) -> Prediction:
        positions = tuple(range(question.curve.positions[-1] + 1, question.horizon + 1))
        drawn = self.futures(question, positions)
        reaches = () if question.target is None else tuple((drawn >= question.target).mean(0).tolist())
        # The inverse of the empirical distribution. If the number of draws divides 100, each draw has the same weight.
        final = np.quantile(drawn[:, -1], LEVELS, method="inverted_cdf")
        mean, deviation = drawn.mean(0), drawn.std(0)
        return Prediction(positions, tuple(mean.tolist()), tuple(deviation.tolist()), reaches, tuple(final.tolist()))


class BaseRate(_Drawn):
    """Predicts the distribution of the final values of all evaluated curves, the same for each curve; not known in reality."""

    def __init__(self, finals: Sequence[float]) -> None:
        super().__init__()
        self._finals = np.asarray(finals, dtype=np.float64)

    def futures(self, question: Question, positions: tuple[int, ...]) -> Floats:
        return np.repeat(self._finals[:, None], len(positions), axis=1)


class LastValue(_Drawn):
    """Predicts that the curve stays at its last value."""

    def futures(self, question: Question, positions: tuple[int, ...]) -> Floats:
        return np.full((1, len(positions)), question.curve.values[-1])


class RandomWalk(_Drawn):
    """Predicts normal steps from the last value, as large as the steps so far: the spread grows with the square root of the steps."""

    def futures(self, question: Question, positions: tuple[int, ...]) -> Floats:
        values = np.asarray(question.curve.values)
        step = float(np.sqrt(np.mean(np.diff(values) ** 2))) if len(values) > 1 else 0.0
        ahead = np.asarray(positions) - question.curve.positions[-1]
        drawn: Floats = values[-1] + step * np.sqrt(ahead) * _NORMAL[:, None]
        return drawn


class LastAndIncrements(_Drawn):
    """Predicts the last value plus the increments of finished runs: their value at each later position minus that at this position."""

    reads: ClassVar[Literal["nothing", "curves"]] = "curves"

    def futures(self, question: Question, positions: tuple[int, ...]) -> Floats:
        here = len(question.curve.values)
        runs = np.asarray([other.values for other in question.others])
        drawn: Floats = question.curve.values[-1] + runs[:, here:] - runs[:, here - 1 : here]
        return drawn
