"""Curves whose ends are known, and scores of what was predicted for them: for tests of predictors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from hopyard.predictor.base import LEVELS, Curve, Prediction, Question

Floats = NDArray[np.float64]

EPOCHS: Final = 60
"""Reports of a whole curve, at 1, 2, ..."""


@dataclass(frozen=True, slots=True)
class CurveFamily:
    """Curves of one kind: made from chance, all reports of a curve at once.

    Attributes:
        name: What it is called.
        draw: Makes the reports, shape (EPOCHS,), all finite.
        mode: Which direction is better.
        low: The smallest value of the metric, where it is known.
        high: The largest one.
    """

    name: str
    draw: Callable[[np.random.Generator], Floats]
    mode: Literal["max", "min"] = "max"
    low: float | None = None
    high: float | None = None

    def curves(self, count: int, seed: int) -> Floats:
        """Whole curves, shape (count, EPOCHS); the same for the same seed."""
        rng = np.random.default_rng([seed, *self.name.encode()])
        drawn = np.array([self.draw(rng) for _ in range(count)])
        return np.clip(drawn, self.low, self.high) if (self.low, self.high) != (None, None) else drawn

    def question(self, values: Floats, seen: int) -> Question:
        """The first `seen` reports of a whole curve, to be extrapolated to its end."""
        return Question(curve(values[:seen]), EPOCHS, mode=self.mode, low=self.low, high=self.high)


def curve(values: Sequence[float] | Floats, every: int = 1, ended: bool = False) -> Curve:
    """A curve with a report at each `every`-th position, and no hyperparameters."""
    positions = tuple(range(every, every * len(values) + 1, every))
    return Curve(positions, tuple(float(value) for value in values), ended=ended)


def mirrored(question: Question) -> Question:
    """The same question about the negative of the metric, which is to be minimised where that was maximised."""
    turned = scaled(question, -1.0, 0.0)
    return replace(turned, mode="min" if question.mode == "max" else "max", low=turned.high, high=turned.low)


def scaled(question: Question, factor: float, shift: float) -> Question:
    """The same question about `factor` times the metric plus `shift`."""

    def moved(value: float | None) -> float | None:
        return None if value is None else factor * value + shift

    def changed(one: Curve) -> Curve:
        return replace(one, values=tuple(factor * value + shift for value in one.values))

    return replace(
        question,
        curve=changed(question.curve),
        others=tuple(changed(one) for one in question.others),
        target=moved(question.target),
        low=moved(question.low),
        high=moved(question.high),
    )


def crps(prediction: Prediction, truth: float) -> float:
    """The continuous ranked probability score of `final` for what came, in the metric's unit; smaller is better."""
    levels, off = np.asarray(LEVELS), truth - np.asarray(prediction.final)
    return float(2 * np.mean(np.where(off > 0, levels * off, (levels - 1) * off)))


def rank(prediction: Prediction, truth: float) -> float:
    """The share of `final` below what came, from 0 to 1, ties counted half: uniform if predictions are calibrated."""
    final = np.asarray(prediction.final)
    return float((np.mean(final < truth) + np.mean(final <= truth)) / 2)


_AXIS: Final = np.arange(1, EPOCHS + 1, dtype=np.float64)


def _rising(rng: np.random.Generator) -> Floats:
    """An accuracy: power laws towards their asymptotes."""
    start, end = rng.uniform(0.05, 0.3), rng.uniform(0.5, 0.95)
    return end - (end - start) * _AXIS ** -rng.uniform(0.3, 1.2) + rng.normal(0, rng.uniform(0.003, 0.02), EPOCHS)


def _levelling(rng: np.random.Generator) -> Floats:
    """An accuracy that has soon come as far as it gets; one in five never leaves where it began."""
    start, end = rng.uniform(0.1, 0.2), rng.uniform(0.3, 0.9)
    end = start if rng.random() < 0.2 else end
    rise = 1 - np.exp(-(_AXIS - 1) / rng.uniform(2, 12))
    return start + (end - start) * rise + rng.normal(0, rng.uniform(0.003, 0.02), EPOCHS)


def _falling(rng: np.random.Generator) -> Floats:
    """A loss: noise in proportion to it."""
    start, floor = rng.uniform(1.5, 3.0), rng.uniform(0.05, 0.8)
    fall = floor + (start - floor) * np.exp(-((_AXIS / rng.uniform(4, 25)) ** rng.uniform(0.5, 1.0)))
    return fall * np.exp(rng.normal(0, rng.uniform(0.01, 0.04), EPOCHS))


def _rewarded(rng: np.random.Generator) -> Floats:
    """A return of an episode between -500 and 300: learnt at some time, and noisy throughout."""
    start, end = rng.uniform(-450, -250), rng.uniform(-150, 250)
    learnt = 1 / (1 + np.exp(-(_AXIS - rng.uniform(5, 40)) / rng.uniform(2, 8)))
    return start + (end - start) * learnt + rng.normal(0, rng.uniform(10, 40), EPOCHS)


FAMILIES: Final = (
    CurveFamily("rising accuracies", _rising, low=0.0, high=1.0),
    CurveFamily("accuracies that level off", _levelling, low=0.0, high=1.0),
    CurveFamily("falling losses", _falling, mode="min", low=0.0),
    CurveFamily("rewards", _rewarded, low=-500.0, high=300.0),
)
"""What predictions are scored on."""
