"""A mixture of normal distributions at each of several positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopyard_curves.grid.normal import quick_distribution

Floats = NDArray[np.float64]

_START: Final = np.sinh(np.linspace(-2.5, 2.5, 65)).astype(np.float32)
_REFINEMENTS: Final = 2


@dataclass(frozen=True, slots=True)
class Mixture:
    """The predictive distribution of a curve.

    Attributes:
        weights: The weight of each component; the sum is 1; shape (components,).
        means: The mean of each component at each position; shape (components, positions).
        variances: The variance of the curve without noise; shape (components, positions).
        noise: The variance of a report around the curve, >= 0.
    """

    weights: Floats
    means: Floats
    variances: Floats
    noise: float

    def mean(self) -> Floats:
        """Return the expected value at each position."""
        return self.weights @ self.means

    def deviation(self) -> Floats:
        """Return the standard deviation of the curve at each position, without the noise of reports."""
        second = self.weights @ (self.variances + self.means**2)
        return np.sqrt(np.maximum(second - self.mean() ** 2, 0.0))

    def exceeds(self, level: float) -> Floats:
        """Return P(a report is at least `level`) at each position."""
        deviations = np.sqrt((self.variances + self.noise).astype(np.float32))
        deviates = (self.means - level).astype(np.float32)
        deviates /= deviations
        return self.weights @ quick_distribution(deviates)

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """Return quantiles of the report at the last position; `levels` are ascending in (0, 1)."""
        means, variances = self.means[:, -1], self.variances[:, -1] + self.noise
        wanted = np.asarray(levels)
        centre = float(self.weights @ means)
        spread = float(np.sqrt(self.weights @ (variances + (means - centre) ** 2)))
        deviations = (np.sqrt(variances) / spread).astype(np.float32)[:, None]
        offsets = ((means - centre) / spread).astype(np.float32)[:, None]
        points = _START
        for _ in range(_REFINEMENTS):
            below = self.weights @ quick_distribution((points - offsets) / deviations)
            # First on a coarse grid, then on one that is fine where the mass is.
            points = np.interp(wanted, np.maximum.accumulate(below), points).astype(np.float32)
        return np.asarray(centre + spread * points)
