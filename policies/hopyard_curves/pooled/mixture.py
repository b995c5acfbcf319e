"""Mixtures of normal distributions, several at once, for the predictor `pooled`."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopyard_curves.grid.normal import distribution

Floats = NDArray[np.float64]

_FEW: Final = 30
"""Number of components up to which quantiles use many points for each."""


def _deviates(count: int) -> Floats:
    return np.array([NormalDist().inv_cdf((step + 0.5) / count) for step in range(count)])


_CLOSELY, _ROUGHLY = _deviates(100), _deviates(20)
"""Equally weighted points that represent a standard normal distribution."""


@dataclass(frozen=True, slots=True)
class NormalMixtures:
    """B mixtures of K normal distributions each, for example one for each of B future positions.

    Attributes:
        centres: Means of the components, B x K.
        weights: Weights of the components, B x K; the sum of each row is 1.
        spreads: Standard deviations, common to the components of a mixture: B x 1.
    """

    centres: Floats
    weights: Floats
    spreads: Floats

    @property
    def mean(self) -> Floats:
        """The mean of each mixture; shape (B,)."""
        return np.asarray((self.weights * self.centres).sum(axis=1))

    @property
    def variance(self) -> Floats:
        """The variance of each mixture; shape (B,)."""
        away = self.centres - self.mean[:, None]
        return np.asarray((self.weights * away**2).sum(axis=1) + self.spreads[:, 0] ** 2)

    def above(self, point: float) -> Floats:
        """Return, for each mixture, the probability that its variable is at least `point`; shape (B,)."""
        chances = (self.weights * distribution((self.centres - point) / self.spreads)).sum(axis=1)
        return np.asarray(np.clip(chances, 0.0, 1.0))

    def quantiles(self, index: int, levels: Floats) -> Floats:
        """Return approximate quantiles of one mixture; each component is replaced by equally weighted points.

        Args:
            index: The mixture, 0 <= index < B, or negative to count from the end.
            levels: The probabilities of the quantiles, each in (0, 1).
        """
        centres, weights, spread = self.centres[index], self.weights[index], float(self.spreads[index, 0])
        deviates = _CLOSELY if centres.size <= _FEW else _ROUGHLY
        points = (centres[:, None] + spread * deviates).ravel()
        shares = np.repeat(weights / deviates.size, deviates.size)
        order = np.argsort(points)
        shares = shares[order]
        return np.asarray(np.interp(levels, np.cumsum(shares) - shares / 2, points[order]))

    def crps(self, values: Floats) -> Floats:
        """Return the continuous ranked probability score (CRPS, smaller is better) of each mixture for the value that occurred.

        Components are taken as points: `spreads` has no effect.

        Args:
            values: The value that occurred for each mixture; shape (B,).
        """
        order = np.argsort(self.centres, axis=1)
        points, weights = (np.take_along_axis(each, order, axis=1) for each in (self.centres, self.weights))
        below = np.cumsum(weights, axis=1)[:, :-1]
        error = (weights * np.abs(points - values[:, None])).sum(axis=1)
        return np.asarray(error - (np.diff(points, axis=1) * below * (1 - below)).sum(axis=1))
