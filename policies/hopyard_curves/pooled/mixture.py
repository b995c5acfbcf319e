"""Mixtures of normal distributions, several at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopyard_curves.grid.normal import distribution

Floats = NDArray[np.float64]

_KNOTS: Final = (np.linspace(-4, 4, 17), np.array([-3.0, -1.5, 0.0, 1.5, 3.0]))
"""Where a component is looked at, in its spreads: one of up to `_FEW`, one of many."""
_FEW: Final = 30


@dataclass(frozen=True, slots=True)
class Mixture:
    """B mixtures of K normal distributions.

    Attributes:
        centres: B x K.
        weights: B x K; each row sums to 1.
        spreads: The components' standard deviations, the same in a mixture: B x 1.
    """

    centres: Floats
    weights: Floats
    spreads: Floats

    @property
    def mean(self) -> Floats:
        """The mean of each mixture."""
        return np.asarray((self.weights * self.centres).sum(axis=1))

    @property
    def variance(self) -> Floats:
        """The variance of each mixture."""
        away = self.centres - self.mean[:, None]
        return np.asarray((self.weights * away**2).sum(axis=1) + self.spreads[:, 0] ** 2)

    def above(self, point: float) -> Floats:
        """P(x >= point), for each mixture."""
        chances = (self.weights * distribution((self.centres - point) / self.spreads)).sum(axis=1)
        return np.asarray(np.clip(chances, 0.0, 1.0))

    def quantiles(self, index: int, levels: Floats) -> Floats:
        """Quantiles of one of the mixtures, by linear interpolation between points that lie close at each component."""
        centres, weights, spread = self.centres[index], self.weights[index], float(self.spreads[index, 0])
        points = np.sort((centres[:, None] + spread * _KNOTS[centres.size > _FEW]).ravel())
        below = (weights * distribution((points[:, None] - centres) / spread)).sum(axis=1)
        return np.asarray(np.interp(levels, np.maximum.accumulate(below), points))

    def crps(self, values: Floats) -> Floats:
        """Continuous ranked probability score of each mixture for its value, the components taken as points."""
        order = np.argsort(self.centres, axis=1)
        points, weights = (np.take_along_axis(each, order, axis=1) for each in (self.centres, self.weights))
        below = np.cumsum(weights, axis=1)[:, :-1]
        error = (weights * np.abs(points - values[:, None])).sum(axis=1)
        return np.asarray(error - (np.diff(points, axis=1) * below * (1 - below)).sum(axis=1))
