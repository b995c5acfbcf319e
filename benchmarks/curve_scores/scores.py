"""Scores predictions with proper scoring rules, and averages the scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hopyard.predictor import LEVELS, Prediction

BINS: Final = 10
INSIDE: Final = (0.05, 0.95)
"""The quantiles of a prediction between which 90 % of the final values should be."""


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one prediction, given the final value that was observed.

    Attributes:
        crps: Continuous ranked probability score of the final value, in the metric's unit; 0 is perfect.
        inside: Whether the final value is inside the central 90 % interval of the prediction.
        chance: Predicted probability that the final value reaches the target.
        reached: Whether the final value reached the target.
        rank: Quantile of the final value in the predicted distribution, 0 to 1; uniformly distributed if predictions are calibrated.
        seconds: CPU seconds of the prediction.
    """

    crps: float
    inside: bool
    chance: float
    reached: bool
    rank: float
    seconds: float


def crps(final: Sequence[float], value: float) -> float:
    """Return the continuous ranked probability score of a distribution for the observed value: E|X - value| - E|X - X'| / 2.

    X and X' are drawn independently from `final`, the quantiles of the distribution at `LEVELS`, each with the same probability.
    """
    points = np.asarray(final, dtype=np.float64)
    count = len(points)
    ranks = 2 * np.arange(1, count + 1) - count - 1
    return float(np.abs(points - value).mean() - (ranks * points).sum() / count**2)


def score(prediction: Prediction, value: float, target: float, seconds: float) -> Score:
    """Return the score of a prediction of a curve.

    Args:
        prediction: The prediction.
        value: Final value of the curve that was observed; larger is better.
        target: The target.
        seconds: CPU seconds of the prediction.

    Raises:
        ValueError: The prediction violates the contract of `Prediction`.
    """
    final = np.asarray(prediction.final)
    chance = prediction.reaches[-1] if prediction.reaches else np.nan
    if final.shape != (len(LEVELS),) or not np.isfinite(final).all() or (np.diff(final) < 0).any():
        raise ValueError("the prediction's final quantiles are not finite, not as many as LEVELS, or falling")
    if not 0.0 <= chance <= 1.0:
        raise ValueError(f"the prediction's last chance to reach the target is {chance}, not in 0 to 1")
    low, high = np.interp(INSIDE, LEVELS, final)
    return Score(
        crps=crps(prediction.final, value),
        inside=bool(low <= value <= high),
        chance=float(chance),
        reached=value >= target,
        rank=float(((final < value).mean() + (final <= value).mean()) / 2),
        seconds=seconds,
    )


def means(scores: Sequence[Score]) -> dict[str, float]:
    """Return the mean CRPS, the coverage of the 90 % interval, the Brier score, and the mean CPU milliseconds of a prediction."""
    return {
        "crps": float(np.mean([one.crps for one in scores])),
        "coverage": float(np.mean([one.inside for one in scores])),
        "brier": float(np.mean([(one.chance - one.reached) ** 2 for one in scores])),
        "ms": 1e3 * float(np.mean([one.seconds for one in scores])),
    }


def reliability(scores: Sequence[Score]) -> dict[str, Any]:
    """Return predicted against observed frequencies.

    Returns:
        `target`: for each tenth of the predicted probabilities, the number of predictions, their mean, and how often the target was
            reached (None:
        no predictions). `ranks`: the share of final values in each tenth of their predicted distribution, 0.1 each if predictions are
        calibrated.
    """
    chance = np.asarray([one.chance for one in scores])
    reached = np.asarray([one.reached for one in scores])
    bins = np.minimum((chance * BINS).astype(int), BINS - 1)
    rows = []
    for index in range(BINS):
        there = bins == index
        some = bool(there.any())
        rows.append(
            {
                "count": int(there.sum()),
                "predicted": float(chance[there].mean()) if some else None,
                "observed": float(reached[there].mean()) if some else None,
            }
        )
    ranks = np.histogram([one.rank for one in scores], bins=BINS, range=(0.0, 1.0))[0] / len(scores)
    return {"target": rows, "ranks": ranks.tolist()}
