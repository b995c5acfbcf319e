"""Predictions from samples of the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from hopyard.predictor import LEVELS
from hopyard_curves.mcmc.numba_kernels import Floats
from hopyard_curves.metric_normalization import Scale


@dataclass(frozen=True, slots=True)
class Samples:
    """S samples of a curve at m future positions, in units.

    Walkers that never reached the support of the posterior are included; values that are not numbers are ignored.

    Attributes:
        curves: S rows of m expected values.
        sigmas: The S standard deviations of a report around its curve.
    """

    curves: Floats
    sigmas: Floats

    def readable(self) -> bool:
        """Return whether every position has a usable sample."""
        return bool((np.isfinite(self.curves) & (self.sigmas > 0)[:, None]).any(axis=0).all())


def moments(samples: Samples, scale: Scale) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of the expected curve in the metric, without the noise of reports."""
    finite = np.isfinite(samples.curves)
    metric = scale.clipped(scale.from_unit(np.where(finite, samples.curves, 0.0)))
    return metric.mean(axis=0, where=finite), metric.std(axis=0, where=finite)


def chances(samples: Samples, target: float) -> Floats:
    """Return P(a report is >= `target` units) at each position: the published "posterior_prob_x_greater_than"."""
    counted = np.isfinite(samples.curves) & (samples.sigmas > 0)[:, None]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = ndtr((samples.curves - target) / samples.sigmas[:, None])
    return np.asarray(found.mean(axis=0, where=counted))


def last(samples: Samples) -> Floats:
    """Return the quantiles at `LEVELS` of a report at the last position, from the quantiles of each sample."""
    curve = samples.curves[:, -1]
    counted = np.isfinite(curve) & (samples.sigmas > 0)
    points = curve[counted, None] + samples.sigmas[counted, None] * ndtri(LEVELS)
    return np.asarray(np.quantile(points, LEVELS, method="hazen"))
