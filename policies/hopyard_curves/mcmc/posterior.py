"""The posterior density of the model's parameters theta for a curve.

theta = [parameters of each kept family, sigma, a weight w_k for each kept family]. The expected curve is the sum of the
families' curves f_k, each times w_k / sum w. A report is the expected curve plus normal noise with standard deviation
sigma. Late reports have larger weights in the likelihood (`recency`). The kept families are those that could be fitted
to the curve. The prior is flat where

1. every w_k >= 0,
2. each f_k is in [0, 100] at the horizon,
3. no f_k is lower at the horizon than at x = 2,

and zero elsewhere. x is the position as a count of reports (`reports.abscissae`); values are normalized (0 worst, 1
best).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hopyard_curves.mcmc.families import FAMILIES
from hopyard_curves.mcmc.numba_kernels import Floats, Posterior, abscissae

SIZES: Final = tuple(len(family.start) for family in FAMILIES)


def recency(n: int) -> Floats:
    """Return the weights of n reports in the likelihood, in the order of positions: 10^(i / n) for i = 0, ..., n - 1."""
    return np.asarray(10.0 ** (np.arange(n) / n))


def posterior(x: Floats, values: Floats, horizon: float, kept: list[int]) -> Posterior:
    """Build the posterior of a curve (see the module).

    Args:
        x: Abscissae of its n reports (positions as a count of reports), ascending, >= 1.
        values: The normalized reports: about 0..1, larger is better.
        horizon: The last abscissa of interest, larger than all of x.
        kept: Indices in `FAMILIES` of the families in the model, ascending.
    """
    sizes = [SIZES[family] for family in kept]
    return Posterior(
        np.array(kept, dtype=np.int64),
        np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]),
        abscissae(x),
        np.ascontiguousarray(values, dtype=np.float64),
        recency(values.size),
        abscissae([min(2.0, horizon), horizon]),
    )
