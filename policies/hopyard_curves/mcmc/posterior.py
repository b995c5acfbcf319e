"""The posterior density of the model's parameters for a curve.

theta = [parameters of each kept family, sigma, a weight w_k for each kept family]. The curve is the sum of the families
with shares w_k / sum w; a report is that plus normal noise sigma; late reports weigh more (`recency`). The priors are
flat where

1. every w_k >= 0,
2. each family alone ends in [0, 100],
3. no family alone ends lower than at x = 2,

and zero elsewhere.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hopyard_curves.mcmc.families import FAMILIES
from hopyard_curves.mcmc.numba_kernels import Floats, Posterior, abscissae

SIZES: Final = tuple(len(family.start) for family in FAMILIES)


def recency(n: int) -> Floats:
    """Return the weights of n reports: from 1 for the first to nearly 10 for the last."""
    return np.asarray(10.0 ** (np.arange(n) / n))


def posterior(x: Floats, values: Floats, horizon: float, kept: list[int]) -> Posterior:
    """Build the posterior of a curve.

    Args:
        x: Abscissae of its n reports, ascending, >= 1.
        values: The reports, about 0..1, larger is better.
        horizon: The last abscissa of interest, beyond x.
        kept: The families to keep.
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
