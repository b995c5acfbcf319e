"""What a configuration alone says about where its curve ends, from those that came there.

Each hyperparameter counts as much as its neighbours there would have foretold one another's ends, so that most count nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEAST_RUNS: Final = 15
"""With fewer ends nothing is learnt from configurations."""
LEAST_GAIN: Final = 0.1
"""Forecasts must have spared this share of the ends' variance, each run's from the others, to be used."""
_WIDTH: Final = 0.15
"""How far apart values of a hyperparameter are that are alike, as a share of all values."""
_CAUTION: Final = 0.5
"""Runs with the mean end that every forecast takes in beside the real ones."""


def forecasts(configurations: Sequence[Mapping[str, Any]], ended: NDArray[np.intp], ends: Floats) -> Floats | None:
    """Ends as the configurations foretell them, each from all the others.

    Args:
        configurations: Of all runs.
        ended: Which of them have ended.
        ends: How, in that order.

    Returns:
        One number a configuration; None where they foretell nothing.
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
    """The mean end of what is near, without a run's own."""
    near = np.exp(-0.5 * apart**2)
    near[ended, np.arange(ended.size)] = 0.0
    mean = np.full(len(apart), ends.mean())
    mean[ended] = (ends.sum() - ends) / (ends.size - 1)
    return np.asarray((near @ ends + _CAUTION * mean) / (near.sum(axis=1) + _CAUTION))


def _gain(apart: Floats, ends: Floats) -> float:
    """The share of the variance of ends that forecasts from what is near spare, each run's from the others."""
    told = _foretold(apart, np.arange(ends.size), ends)
    without = (ends.sum() - ends) / (ends.size - 1)
    return float(1 - np.sum((ends - told) ** 2) / np.sum((ends - without) ** 2))


def _apart(values: Sequence[Any]) -> Floats:
    """Distances, 0 to 1: of numbers by their rank; of other values, and of what is not there from what is, 0 or 1."""
    if not all(value is None or (isinstance(value, int | float) and not isinstance(value, bool)) for value in values):
        kinds = np.unique([repr(value) for value in values], return_inverse=True)[1]
        return np.asarray((kinds[:, None] != kinds).astype(np.float64))
    given = np.array([np.nan if value is None else float(value) for value in values])
    there = ~np.isnan(given)
    known = np.sort(given[there])
    ranks = (np.searchsorted(known, given, "left") + np.searchsorted(known, given, "right")) / max(2 * known.size, 1)
    both = there[:, None] & there
    return np.asarray(np.where(both, np.abs(ranks[:, None] - ranks), there[:, None] != there))
