"""What the model makes of a curve: the density of its parameters.

theta = [parameters of each kept family, sigma, a weight w_k for each kept family]. The curve is the families' sum with shares
w_k / sum w; a report is that plus normal noise sigma; late reports count more (`recency`). The priors are flat where

1. every w_k >= 0,
2. each family by itself ends in [0, 100],
3. no family by itself ends lower than it is at x = 2,

and zero elsewhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from hopyard_curves.mcmc.compiled import Floats, Indices, abscissae, add, compiled
from hopyard_curves.mcmc.families import FAMILIES

HIGHEST: Final = 100.0
SIZES: Final = tuple(len(family.start) for family in FAMILIES)
_HALF_LOG_TWO_PI: Final = 0.9189385332046727


class Posterior(NamedTuple):
    """A curve, and the families that are kept for it.

    Attributes:
        kept: K indices into `FAMILIES`, rising.
        offsets: Where the parameters of each kept family begin in theta, and where they all end: K + 1.
        at: `abscissae` of the n reports.
        values: The n reports.
        weights: How much each counts.
        ends: `abscissae` of 2 (of the horizon, where that comes first) and of the horizon.
    """

    kept: Indices
    offsets: Indices
    at: Floats
    values: Floats
    weights: Floats
    ends: Floats

    @property
    def dimension(self) -> int:
        """The length of theta."""
        return int(self.offsets[-1]) + 1 + self.kept.size


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


@compiled
def plausible(family: int, p: Floats, ends: Floats, found: Floats) -> bool:
    """Whether priors 2 and 3 hold for one family; `found` has room for two values."""
    found[:] = 0.0
    add(family, p, ends, 1.0, found)
    return 0.0 <= found[1] <= HIGHEST and not found[0] > found[1]


@compiled
def log_density(theta: Floats, about: Posterior, curve: Floats) -> float:
    """The logarithm of the posterior density, up to a constant; -inf where it is zero or no number.

    What costs least is looked at first.

    Args:
        theta: The parameters.
        about: The curve and the families.
        curve: Room for n values, at least two.
    """
    families = about.kept.size
    end = about.offsets[families]
    sigma, weights = theta[end], theta[end + 1 :]
    total = 0.0
    for k in range(families):
        if not weights[k] >= 0:
            return -np.inf
        total += weights[k]
    if not (sigma > 0 and total > 0):
        return -np.inf
    for k in range(families):
        if not plausible(about.kept[k], theta[about.offsets[k] : about.offsets[k + 1]], about.ends, curve[:2]):
            return -np.inf
    curve[:] = 0.0
    for k in range(families):
        p = theta[about.offsets[k] : about.offsets[k + 1]]
        add(about.kept[k], p, about.at, weights[k] / total, curve)
    noise = np.log(sigma) + _HALF_LOG_TWO_PI
    found = 0.0
    for i in range(about.values.size):
        distance = (about.values[i] - curve[i]) / sigma
        found -= about.weights[i] * (0.5 * distance * distance + noise)
    return -np.inf if np.isnan(found) else found


@compiled
def log_densities(thetas: Floats, about: Posterior) -> Floats:
    """`log_density` of each row."""
    found = np.empty(thetas.shape[0])
    curve = np.empty(max(2, about.values.size))
    for row in range(found.size):
        found[row] = log_density(thetas[row], about, curve)
    return found


@compiled
def curves(thetas: Floats, about: Posterior, at: Floats) -> Floats:
    """The expected curve of each row of parameters at the `abscissae` of m points: a row of m values for each."""
    families = about.kept.size
    end = about.offsets[families]
    found = np.zeros((thetas.shape[0], at.shape[1]))
    for row in range(found.shape[0]):
        theta = thetas[row]
        total = theta[end + 1 :].sum()
        for k in range(families):
            p = theta[about.offsets[k] : about.offsets[k + 1]]
            add(about.kept[k], p, at, theta[end + 1 + k] / total, found[row])
    return found
