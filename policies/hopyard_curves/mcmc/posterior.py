"""What the model makes of a curve: the density of its parameters.

theta = [parameters of each kept family, sigma, a weight w_k for each kept family]. The curve is the families' sum with shares
w_k / sum w; a report is that plus normal noise sigma; late reports count more (`recency`). The priors are flat where

1. every w_k >= 0,
2. each family by itself ends in [0, 100],
3. no family by itself ends lower than it is at x = 2,

and zero elsewhere.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hopyard_curves.mcmc.families import FAMILIES
from hopyard_curves.mcmc.numba_kernels import Floats, Posterior, abscissae

SIZES: Final = tuple(len(family.start) for family in FAMILIES)


def recency(n: int) -> Floats:
    """The weights of n reports: from 1 for the first to nearly 10 for the last."""
    return np.asarray(10.0 ** (np.arange(n) / n))


def posterior(x: Floats, values: Floats, horizon: float, kept: list[int]) -> Posterior:
    """What is known of a curve.

    Args:
        x: Where its n reports are, rising, >= 1.
        values: What they say, about 0..1, better upward.
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
