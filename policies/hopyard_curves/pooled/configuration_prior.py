"""Predicts the final value of a learning curve from its configuration and the final values of other jobs' curves.

A curve is *finished* if it reaches a common late position. The final value ("end") is its normalized value there (0 worst,
1 best). The prediction is a kernel regression on the hyperparameters. Each hyperparameter is weighted by how well it alone
predicts the known ends, so most have no weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_RUNS: Final = 15
"""Minimum number of ends for a prediction."""
LEAST_GAIN: Final = 0.1
"""Minimum fraction of the variance of the ends that leave-one-out predictions must explain."""
_WIDTH: Final = 0.15
"""Kernel width for a hyperparameter, as a fraction of its range of ranks."""
_CAUTION: Final = 0.5
"""Number of fictitious finished curves with the mean end that every prediction includes."""


def forecasts(configurations: Sequence[Mapping[str, Any]], ended: NDArray[np.intp], ends: Floats) -> Floats | None:
    """Predict the end (normalized final value) of the learning curve of each configuration.

    A finished curve is one whose end is known. Its own end is not used for its prediction.

    Args:
        configurations: The configurations of all curves, finished or not, including that of a curve to predict.
        ended: Indices of the finished curves in `configurations`.
        ends: The ends of the finished curves, in the order of `ended`.

    Returns:
        One value for each configuration. None if there are fewer than `LEAST_RUNS` ends, if all are equal, or if
        leave-one-out predictions explain less than the fraction `LEAST_GAIN` of their variance.
    """
    if ended.size < LEAST_RUNS or np.ptp(ends) == 0:
        return None
    far = np.zeros((len(configurations), ended.size))
    for name in sorted(set().union(*configurations)):
        apart = _apart([configuration.get(name) for configuration in configurations])[:, ended] / _WIDTH
        if apart.any():
            far += max(0.0, _gain(apart[ended], ends)) * apart**2
    if _gain(np.sqrt(far[ended]), ends) < LEAST_GAIN:
        return None
    return _foretold(np.sqrt(far), ended, ends)


def _foretold(apart: Floats, ended: NDArray[np.intp], ends: Floats) -> Floats:
    """Return, for each curve, the kernel-weighted mean of the ends (final values) of the finished curves, without its own.

    Args:
        apart: Distances of curves (rows) from finished curves (columns), in kernel widths.
        ended: The rows of the finished curves.
        ends: The ends of the finished curves, in the order of `ended`.
    """
    near = np.exp(-0.5 * apart**2)
    near[ended, np.arange(ended.size)] = 0.0
    mean = np.full(len(apart), ends.mean())
    mean[ended] = (ends.sum() - ends) / (ends.size - 1)
    return np.asarray((near @ ends + _CAUTION * mean) / (near.sum(axis=1) + _CAUTION))


def _gain(apart: Floats, ends: Floats) -> float:
    """Return the fraction of the variance of the ends (final values) that leave-one-out predictions explain; can be negative.

    Args:
        apart: Pairwise distances of the finished curves, in kernel widths.
        ends: The ends of the finished curves.
    """
    told = _foretold(apart, np.arange(ends.size), ends)
    without = (ends.sum() - ends) / (ends.size - 1)
    return float(1 - np.sum((ends - told) ** 2) / np.sum((ends - without) ** 2))


def _apart(values: Sequence[Any]) -> Floats:
    """Return the matrix of pairwise distances, in 0..1, of the values of one hyperparameter; None is a missing value.

    The distance of two numbers is the difference of their ranks divided by the count of numbers. If any value is not a
    number, the distance is 0 for equal and 1 for different values. A missing and a present value have the distance 1, two
    missing values the distance 0.
    """
    if not all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        kinds = np.unique([repr(value) for value in values], return_inverse=True)[1]
        return np.asarray((kinds[:, None] != kinds).astype(np.float64))
    given = np.array([np.nan if value is None else float(value) for value in values])
    there = ~np.isnan(given)
    known = np.sort(given[there])
    ranks = (np.searchsorted(known, given, "left") + np.searchsorted(known, given, "right")) / max(2 * known.size, 1)
    both = there[:, None] & there
    return np.asarray(np.where(both, np.abs(ranks[:, None] - ranks), there[:, None] != there))
