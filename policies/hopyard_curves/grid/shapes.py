"""How learning curves rise: from 0 at the first report to 1 at the horizon."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

POWERS: Final = ((0, 0.1), (0.25, 0.1), (0.5, 0.1), (1, 0.1), (2, 0.1))
"""Exponents a of the power laws -x^-a (0: the logarithm), and how likely each is."""
CENTRES: Final = ((0.041, 0.022), (0.11, 0.66), (0.27, 0.16), (0.6, 0.16))
"""Where the sigmoids 1 / (1 + (c/x)^d) are half way up, as a part c of the horizon, and how likely each is."""
STEEPNESS: Final = ((1.0, 0.26), (2.2, 0.48), (4.8, 0.26))
"""Exponents d of the sigmoids (those of MMF and Hill), and how likely each is."""

_ODDS: Final = np.asarray(
    [odds for _, odds in POWERS] + [centre_odds * odds for _, centre_odds in CENTRES for _, odds in STEEPNESS]
)
ODDS: Final[Floats] = _ODDS / _ODDS.sum()
"""How likely each shape is before a curve is seen."""


def shapes(abscissae: Floats, horizon: float) -> Floats:
    """All shapes at some abscissae (1 for the first report) up to the horizon (> 1); a row a shape, as in `ODDS`."""
    points = np.concatenate((abscissae, [1.0, horizon]))
    logs = np.log(points)
    rows = [logs if power == 0 else -np.exp(-power * logs) for power, _ in POWERS]
    for centre, _ in CENTRES:
        for steepness, _ in STEEPNESS:
            rows.append(1.0 / (1.0 + np.exp(steepness * (np.log(centre * horizon) - logs))))
    raw = np.stack(rows)
    first, last = raw[:, -2, None], raw[:, -1, None]
    return np.asarray((raw[:, :-2] - first) / (last - first))
