"""Shapes of learning curves for the predictor `grid`: functions that are 0 at the first report and 1 at the horizon."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

POWERS: Final = ((0, 0.053), (0.25, 0.13), (0.5, 0.089), (1.0, 0.037), (2.0, 0.018))
"""Exponents a of the power laws -x^-a (0: the logarithm) and their prior weights."""
CENTRES: Final = ((0.1, 0.38), (0.47, 0.19), (1.4, 0.1))
"""Centres c of the sigmoids 1 / (1 + (c/x)^d), as fractions of the horizon, and their prior weights."""
STEEPNESS: Final = ((0.82, 0.086), (2.0, 0.77), (5.6, 0.14))
"""Exponents d of the sigmoids (those of MMF and Hill) and their prior weights."""

_ODDS: Final = np.asarray(
    [odds for _, odds in POWERS] + [centre_odds * odds for _, centre_odds in CENTRES for _, odds in STEEPNESS]
)
ODDS: Final[Floats] = _ODDS / _ODDS.sum()
"""Prior probability of each shape."""


def shapes(abscissae: Floats, horizon: float) -> Floats:
    """Return the values of all curve shapes: one row for each shape in the order of `ODDS`, one column for each abscissa.

    Args:
        abscissae: Positions as a count of reports: 1 for the first report, at most `horizon`.
        horizon: The abscissa at which every shape is 1; > 1. At abscissa 1 every shape is 0.
    """
    points = np.concatenate((abscissae, [1.0, horizon]))
    logs = np.log(points)
    rows = [logs if power == 0 else -np.exp(-power * logs) for power, _ in POWERS]
    for centre, _ in CENTRES:
        for steepness, _ in STEEPNESS:
            rows.append(1.0 / (1.0 + np.exp(steepness * (np.log(centre * horizon) - logs))))
    raw = np.stack(rows)
    first, last = raw[:, -2, None], raw[:, -1, None]
    return np.asarray((raw[:, :-2] - first) / (last - first))
