"""Proper scores of a prediction, and their means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from hopyard.predictor import LEVELS, Prediction

BINS: Final = 10
INSIDE: Final = (0.05, 0.95)
"""The quantiles between which 90% of the final values should lie."""


@dataclass(frozen=True, slots=True)
class Score:
    """One prediction beside what came.

    Attributes:
        crps: Continuous ranked probability score of the final value, in the metric's unit; 0 is perfect.
        inside: The final value lies in the central 90% interval.
        chance: P(the final value reaches the target), as predicted.
        reached: Whether it did.
        rank: Where the final value lies in its predicted distribution, 0 to 1 (uniform when calibrated).
        seconds: Processor time of the prediction.
    """

    crps: float
    inside: bool
    chance: float
    reached: bool
    rank: float
    seconds: float


def crps(final: Sequence[float], value: float) -> float:
    """E|X - value| - E|X - X'|/2, exactly, X being any of a distribution's quantiles at `LEVELS`, each as likely."""
    points = np.asarray(final, dtype=np.float64)
    count = len(points)
    ranks = 2 * np.arange(1, count + 1) - count - 1
    return float(np.abs(points - value).mean() - (ranks * points).sum() / count**2)


def score(prediction: Prediction, value: float, target: float, seconds: float) -> Score:
    """Scores a prediction of a curve whose last value was `value`; larger is better.

    Raises:
        ValueError: The prediction breaks what `Prediction` promises.
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
    """The mean CRPS, coverage and Brier score, and milliseconds of processor time a prediction."""
    return {
        "crps": float(np.mean([one.crps for one in scores])),
        "coverage": float(np.mean([one.inside for one in scores])),
        "brier": float(np.mean([(one.chance - one.reached) ** 2 for one in scores])),
        "ms": 1e3 * float(np.mean([one.seconds for one in scores])),
    }


def reliability(scores: Sequence[Score]) -> dict[str, Any]:
    """What was predicted against what came.

    Returns:
        `target`: for each tenth of predicted chances their number, mean, and how often the target was reached (None: no such chance).
        `ranks`: the share of final values in each tenth of their predicted distribution (0.1 each when calibrated).
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
