"""The predictive distribution of a learning curve: a mixture of normal distributions at each future position.

All values are normalized: on a scale of the metric with 0 as the worst and 1 as the best expected value (see
`hopyard_curves.metric_normalization.Scale`).
"""

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
    """The predictive distribution of a learning curve at several future positions, as normalized values (0 = worst, 1 = best).

    At each position the curve has a mixture of K normal distributions. A report is the curve plus normal noise.

    Attributes:
        weights: The weight of each component; the sum is 1; shape (K,).
        means: The mean of each component at each position; shape (K, positions).
        variances: The variance of the curve in each component at each position, without the noise of reports; same
            shape.
        noise: The variance of a report around the curve, >= 0; one number for all positions.
    """

    weights: Floats
    means: Floats
    variances: Floats
    noise: float

    def mean(self) -> Floats:
        """Return the expected value of the curve at each position, normalized; shape (positions,)."""
        return self.weights @ self.means

    def deviation(self) -> Floats:
        """Return the standard deviation of the normalized curve at each position, without the noise of reports; shape (positions,)."""
        second = self.weights @ (self.variances + self.means**2)
        return np.sqrt(np.maximum(second - self.mean() ** 2, 0.0))

    def exceeds(self, level: float) -> Floats:
        """Return, for each position, the probability that a report there is at least `level`, a normalized value; noise is included."""
        deviations = np.sqrt((self.variances + self.noise).astype(np.float32))
        deviates = (self.means - level).astype(np.float32)
        deviates /= deviations
        return self.weights @ quick_distribution(deviates)

    def quantiles(self, levels: Sequence[float]) -> Floats:
        """Return the quantiles of the report at the last position, as normalized values, including noise.

        Args:
            levels: The probabilities of the quantiles, ascending, each in (0, 1).
        """
        means, variances = self.means[:, -1], self.variances[:, -1] + self.noise
        wanted = np.asarray(levels)
        centre = float(self.weights @ means)
        spread = float(np.sqrt(self.weights @ (variances + (means - centre) ** 2)))
        deviations = (np.sqrt(variances) / spread).astype(np.float32)[:, None]
        offsets = ((means - centre) / spread).astype(np.float32)[:, None]
        points = _START
        for _ in range(_REFINEMENTS):
            below = self.weights @ quick_distribution((points - offsets) / deviations)
            # The first pass uses a coarse grid, the second one a grid that is fine where the probability mass is.
            points = np.interp(wanted, np.maximum.accumulate(below), points).astype(np.float32)
        return np.asarray(centre + spread * points)
