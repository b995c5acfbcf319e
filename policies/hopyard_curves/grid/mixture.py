"""A mixture of normal distributions at each of some positions."""

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
    """What a curve may become.

    Attributes:
        weights: Of each component; they sum to 1; shape (components,).
        means: Of each component at each position; shape (components, positions).
        variances: Of the curve that the reports scatter around; the same shape.
        noise: The variance of a report around the curve, >= 0.
    """

    weights: Floats
    means: Floats
    variances: Floats
    noise: float

    def mean(self) -> Floats:
        """The expected value at each position."""
        return self.weights @ self.means

    def deviation(self) -> Floats:
        """The standard deviation of the curve, without the noise of reports, at each position."""
        second = self.weights @ (self.variances + self.means**2)
        return np.sqrt(np.maximum(second - self.mean() ** 2, 0.0))

    def exceeds(self, level: float) -> Floats:
        """P(a report is at least `level`) at each position."""
        deviations = np.sqrt((self.variances + self.noise).astype(np.float32))
        deviates = (self.means - level).astype(np.float32)
        deviates /= deviations
        return self.weights @ quick_distribution(deviates)

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """Quantiles of the report at the last position; `levels` rise within 0..1, exclusively."""
        means, variances = self.means[:, -1], self.variances[:, -1] + self.noise
        wanted = np.asarray(levels)
        centre = float(self.weights @ means)
        spread = float(np.sqrt(self.weights @ (variances + (means - centre) ** 2)))
        deviations = (np.sqrt(variances) / spread).astype(np.float32)[:, None]
        offsets = ((means - centre) / spread).astype(np.float32)[:, None]
        points = _START
        for _ in range(_REFINEMENTS):
            below = self.weights @ quick_distribution((points - offsets) / deviations)
            # First by a coarse net, then by one that is fine where much is.
            points = np.interp(wanted, np.maximum.accumulate(below), points).astype(np.float32)
        return np.asarray(centre + spread * points)
