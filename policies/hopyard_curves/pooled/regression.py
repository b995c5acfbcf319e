"""Bayesian linear regressions with weighted data, many small ones at once.

There are B regressions over the same K observations with F features. An observation is a reference curve: the curve of another job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ROUNDS: Final = 2
_LEAST_VARIANCE: Final = 1e-12
_MOST_LEVERAGE: Final = 0.7


@dataclass(frozen=True, slots=True)
class Fitted:
    """The results of B regressions over the same K reference curves (curves of other jobs).

    Attributes:
        shares: The weight of each reference curve, B x K; the sum of each row is 1.
        residuals: Leave-one-out residuals of the reference curves, B x K.
        coefficients: Intercept and coefficients of the features, B x (1 + F).
        covariance: Covariance of the coefficients, B x (1 + F) x (1 + F).
        variance: Variance of the residuals, B.
        runs: Effective number of reference curves, B: (sum of weights)^2 / sum of squared weights.
        origin: The mean of the features over the reference curves, F. The intercept is the value of the regression there.
    """

    shares: Floats
    residuals: Floats
    coefficients: Floats
    covariance: Floats
    variance: Floats
    runs: Floats
    origin: Floats

    def at(self, features: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the regression functions at given features; the variance of residuals is not included.

        Args:
            features: B x F, one row for each regression, or 1 x F for all.

        Returns:
            Mean and variance for each regression, both of shape (B,).
        """
        places = np.broadcast_to(_design(features, self.origin), self.coefficients.shape)
        means = (places * self.coefficients).sum(axis=1)
        return means, np.einsum("bi,bij,bj->b", places, self.covariance, places)


def fit(weights: Floats, features: Floats, targets: Floats, prior: Floats, spreads: Floats) -> Fitted:
    """Fit B regressions: `targets` = intercept + `features` @ coefficients + residual.

    Coefficients have normal priors, the intercept has none. The variance of the residuals is estimated too.

    Args:
        weights: Weight of each reference curve, B x K, >= 0, at least one positive in each row; only ratios matter.
        features: Features of each reference curve, K x F.
        targets: The value to explain for each reference curve, B x K, or K if it is the same in all regressions.
        prior: Prior means of the coefficients, F.
        spreads: Prior standard deviations of the coefficients, F.
    """
    total = weights.sum(axis=1)
    runs = total**2 / (weights**2).sum(axis=1)
    shares = weights / total[:, None]
    counted = shares * runs[:, None]
    origin = features.mean(axis=0)
    design = _design(features, origin)
    size = design.shape[1]
    products = (design[:, :, None] * design[:, None, :]).reshape(len(design), size * size)
    scatter = (counted @ products).reshape(-1, size, size)
    moments = (counted * targets) @ design
    squares = (counted * targets**2).sum(axis=1)
    precision = np.diag(np.concatenate(([0.0], spreads**-2.0)))
    pull = precision @ np.concatenate(([0.0], prior))
    start = np.concatenate(([0.0], prior))
    coefficients = np.broadcast_to(start, moments.shape).copy()
    coefficients[:, 0] = (moments[:, 0] - scatter[:, 0] @ start) / runs
    freedom = np.maximum(runs - 1, 0.5)
    variance = _variance(squares, moments, scatter, coefficients, freedom)
    covariance = np.zeros_like(scatter)
    for _ in range(_ROUNDS):
        covariance = np.linalg.inv(scatter / variance[:, None, None] + precision)
        coefficients = np.einsum("bij,bj->bi", covariance, moments / variance[:, None] + pull)
        freedom = np.maximum(runs - np.einsum("bij,bji->b", covariance, scatter) / variance, 0.5)
        variance = _variance(squares, moments, scatter, coefficients, freedom)
    leverage = counted * ((covariance.reshape(-1, size * size) @ products.T) / variance[:, None])
    residuals = (targets - coefficients @ design.T) / np.maximum(1 - leverage, 1 - _MOST_LEVERAGE)
    return Fitted(shares, residuals, coefficients, covariance, variance, runs, origin)


def _variance(squares: Floats, moments: Floats, scatter: Floats, coefficients: Floats, freedom: Floats) -> Floats:
    """Return the variance of the residuals of each regression, computed from weighted sums.

    Args:
        squares: Sum of squared targets, B.
        moments: Sums of target times regressor, B x (1 + F).
        scatter: Sums of products of regressors, B x (1 + F) x (1 + F).
        coefficients: B x (1 + F).
        freedom: Degrees of freedom, B; the sum of squared residuals is divided by it.
    """
    left = squares - 2 * (coefficients * moments).sum(axis=1)
    left += np.einsum("bi,bij,bj->b", coefficients, scatter, coefficients)
    return np.asarray(np.maximum(left, 0.0) / freedom + _LEAST_VARIANCE)


def _design(features: Floats, origin: Floats) -> Floats:
    return np.column_stack((np.ones(len(features)), features - origin))
