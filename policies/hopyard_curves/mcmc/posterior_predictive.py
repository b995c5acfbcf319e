"""What samples of the model say about a curve's future."""

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

    Walkers that never came into the posterior's support are among them; what is no number there does not count.

    Attributes:
        curves: S rows of m expected values.
        sigmas: The S standard deviations of a report around its curve.
    """

    curves: Floats
    sigmas: Floats

    def readable(self) -> bool:
        """Whether every position has a sample that says something."""
        return bool((np.isfinite(self.curves) & (self.sigmas > 0)[:, None]).any(axis=0).all())


def moments(samples: Samples, scale: Scale) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the expected curve, in the metric, without the noise of a report."""
    finite = np.isfinite(samples.curves)
    metric = scale.clipped(scale.from_unit(np.where(finite, samples.curves, 0.0)))
    return metric.mean(axis=0, where=finite), metric.std(axis=0, where=finite)


def chances(samples: Samples, target: float) -> Floats:
    """P(a report is >= `target` units) at each position: the published "posterior_prob_x_greater_than"."""
    counted = np.isfinite(samples.curves) & (samples.sigmas > 0)[:, None]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = ndtr((samples.curves - target) / samples.sigmas[:, None])
    return np.asarray(found.mean(axis=0, where=counted))


def last(samples: Samples) -> Floats:
    """The quantiles at `LEVELS` of a report at the last position: of all samples' own quantiles there."""
    curve = samples.curves[:, -1]
    counted = np.isfinite(curve) & (samples.sigmas > 0)
    points = curve[counted, None] + samples.sigmas[counted, None] * ndtri(LEVELS)
    return np.asarray(np.quantile(points, LEVELS, method="hazen"))
