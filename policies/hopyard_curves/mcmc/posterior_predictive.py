"""Predictions from samples of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from hopyard.predictor import LEVELS
from hopyard_curves.mcmc.numba_kernels import Floats
from hopyard_curves.metric_normalization import Scale

_LARGEST: Final = 1e100
"""Values in units that are larger in magnitude are ignored: their squares, scaled to the metric, can overflow."""


@dataclass(frozen=True, slots=True)
class Samples:
    """S samples of a curve at m future positions, in units.

    Walkers that never reached the support of the posterior are included. Their values can be NaN, infinite or so large that a
    square overflows; such values are ignored.

    Attributes:
        curves: S rows of m expected values.
        sigmas: The S standard deviations of a report around its curve.
    """

    curves: Floats
    sigmas: Floats

    @property
    def usable(self) -> NDArray[np.bool_]:
        """S rows of m flags: whether a value takes part in a prediction."""
        return np.abs(self.curves) < _LARGEST  # False for NaN.

    def readable(self) -> bool:
        """Return whether every position has a usable sample."""
        return bool((self.usable & (self.sigmas > 0)[:, None]).any(axis=0).all())


def moments(samples: Samples, scale: Scale) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of the expected curve in the metric, without the noise of reports."""
    usable = samples.usable
    metric = scale.clipped(scale.from_unit(np.where(usable, samples.curves, 0.0)))
    return metric.mean(axis=0, where=usable), metric.std(axis=0, where=usable)


def chances(samples: Samples, target: float) -> Floats:
    """Return P(a report is >= `target` units) at each position: the published "posterior_prob_x_greater_than"."""
    counted = samples.usable & (samples.sigmas > 0)[:, None]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = ndtr((samples.curves - target) / samples.sigmas[:, None])
    return np.asarray(found.mean(axis=0, where=counted))


def last(samples: Samples) -> Floats:
    """Return the quantiles at `LEVELS` of a report at the last position, from the quantiles of each sample."""
    curve = samples.curves[:, -1]
    counted = samples.usable[:, -1] & (samples.sigmas > 0)
    points = curve[counted, None] + samples.sigmas[counted, None] * ndtri(LEVELS)
    return np.asarray(np.quantile(points, LEVELS, method="hazen"))
