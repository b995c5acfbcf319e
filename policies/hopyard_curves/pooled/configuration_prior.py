"""Predicts the end of a curve from its configuration and the ends of finished runs.

Each hyperparameter is weighted by how well it alone predicts the known ends, so most have no weight.
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
"""Number of pseudo-runs with the mean end that every prediction includes."""


def forecasts(configurations: Sequence[Mapping[str, Any]], ended: NDArray[np.intp], ends: Floats) -> Floats | None:
    """Predict the end of each configuration, leaving its own end out.

    Args:
        configurations: The configurations of all runs.
        ended: Indices of the finished runs.
        ends: Their ends, in that order.

    Returns:
        One value for each configuration; None if configurations do not predict ends.
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
    """Return the kernel-weighted mean end of similar runs, leaving a run's own end out."""
    near = np.exp(-0.5 * apart**2)
    near[ended, np.arange(ended.size)] = 0.0
    mean = np.full(len(apart), ends.mean())
    mean[ended] = (ends.sum() - ends) / (ends.size - 1)
    return np.asarray((near @ ends + _CAUTION * mean) / (near.sum(axis=1) + _CAUTION))


def _gain(apart: Floats, ends: Floats) -> float:
    """Return the fraction of the variance of the ends that leave-one-out predictions explain."""
    told = _foretold(apart, np.arange(ends.size), ends)
    without = (ends.sum() - ends) / (ends.size - 1)
    return float(1 - np.sum((ends - told) ** 2) / np.sum((ends - without) ** 2))


def _apart(values: Sequence[Any]) -> Floats:
    """Return pairwise distances in 0..1: of numbers by rank; of other or missing values 0 or 1."""
    if not all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        kinds = np.unique([repr(value) for value in values], return_inverse=True)[1]
        return np.asarray((kinds[:, None] != kinds).astype(np.float64))
    given = np.array([np.nan if value is None else float(value) for value in values])
    there = ~np.isnan(given)
    known = np.sort(given[there])
    ranks = (np.searchsorted(known, given, "left") + np.searchsorted(known, given, "right")) / max(2 * known.size, 1)
    both = there[:, None] & there
    return np.asarray(np.where(both, np.abs(ranks[:, None] - ranks), there[:, None] != there))
