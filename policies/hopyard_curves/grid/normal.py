"""The cumulative distribution function and truncated moments of the standard normal distribution for arrays, without SciPy."""

from __future__ import annotations

from math import pi, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26: erf to 1.5e-7.
_SLOPE: Final = 0.3275911
_COEFFICIENTS: Final = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_FRACTION: Final = 4.0
_MOST: Final = 1.0 - 1e-5

# E. Page, Approximations to the cumulative normal function, Applied Statistics 26 (1977): to 2e-4.
_LINEAR: Final = np.float32(1.5976)
_CUBIC: Final = np.float32(0.070566)
_FAR: Final = np.float32(8.0)


def quick_distribution(deviates: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return, for each value z, P(Z <= z) of a standard normal variable Z, with an absolute error of at most 2e-4.

    It is the fast version of `distribution`. The result overwrites the array `deviates`.
    """
    np.clip(deviates, -_FAR, _FAR, out=deviates)
    odds = deviates * deviates
    odds *= -_CUBIC
    odds -= _LINEAR
    odds *= deviates
    np.exp(odds, out=odds)
    odds += np.float32(1.0)
    np.reciprocal(odds, out=odds)
    return odds


def distribution(deviates: Floats) -> Floats:
    """Return, for each value z, P(Z <= z) of a standard normal variable Z, with an absolute error of about 1e-7.

    Values may be infinite. For very negative z, where the result is below 1e-7, it has the right order of magnitude, down to 1e-300.
    """
    distance = np.abs(deviates) / sqrt(2.0)
    inverse = 1.0 / (1.0 + _SLOPE * distance)
    tail = np.full_like(inverse, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        tail *= inverse
        tail += coefficient
    tail *= 0.5 * inverse * np.exp(-np.minimum(distance * distance, 690.0))
    return np.where(deviates > 0, 1.0 - tail, tail)


def truncated(bounds: Floats) -> tuple[Floats, Floats, Floats]:
    """Return moments of a standard normal variable Z under the condition Z <= bound, for each of `bounds`.

    Args:
        bounds: Finite upper bounds; any shape.

    Returns:
        Three arrays of the shape of `bounds`: ln P(Z <= bound), the negated conditional mean, and one minus the
        conditional variance.
    """
    chances = np.maximum(distribution(bounds), 1e-300)
    density = np.exp(-0.5 * np.minimum(bounds * bounds, 1e3)) / sqrt(2 * pi)
    # In the tail only the order of magnitude of the probability is known; this ratio comes from its continued fraction.
    far = np.maximum(-bounds, _FRACTION)
    fraction = far
    for term in (5.0, 4.0, 3.0, 2.0, 1.0):
        fraction = far + term / fraction
    below = np.where(bounds > -_FRACTION, density / chances, fraction)
    return np.log(chances), below, np.clip(below * (bounds + below), 0.0, _MOST)
