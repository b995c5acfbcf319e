"""Computes predictions of the predictor `mcmc` from samples of its posterior."""

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
"""Normalized values that are larger in magnitude are ignored: their squares, scaled to the metric, can overflow."""


@dataclass(frozen=True, slots=True)
class Samples:
    """S samples of the expected curve at m future positions, normalized (0 worst, 1 best), with S noise levels.

    Some samples come from walkers outside the support of the posterior. Their values can be NaN, infinite, or so large
    that a square overflows; these values are ignored (`usable`).

    Attributes:
        curves: S rows of m values.
        sigmas: For each sample, the standard deviation of a report around the expected curve.
    """

    curves: Floats
    sigmas: Floats

    @property
    def usable(self) -> NDArray[np.bool_]:
        """For each value of `curves`, whether predictions use it: false for NaN and for magnitudes of at least 1e100."""
        return np.abs(self.curves) < _LARGEST  # False for NaN.

    def readable(self) -> bool:
        """Return whether a prediction is possible: every position has a usable value in a sample with sigma > 0."""
        return bool((self.usable & (self.sigmas > 0)[:, None]).any(axis=0).all())


def moments(samples: Samples, scale: Scale) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of the expected curve at each position, as metric values.

    The noise of reports is not included.

    Args:
        samples: The samples, as normalized values.
        scale: The map between metric values and normalized values.
    """
    usable = samples.usable
    metric = scale.clipped(scale.from_unit(np.where(usable, samples.curves, 0.0)))
    return metric.mean(axis=0, where=usable), metric.std(axis=0, where=usable)


def chances(samples: Samples, target: float) -> Floats:
    """Return, for each position, the probability that a report is at least `target`, a normalized value; noise is included.

    It is the function "posterior_prob_x_greater_than" of the code that Domhan et al. published.

    Args:
        samples: The samples, as normalized values.
        target: The normalized value to reach.
    """
    counted = samples.usable & (samples.sigmas > 0)[:, None]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        found = ndtr((samples.curves - target) / samples.sigmas[:, None])
    return np.asarray(found.mean(axis=0, where=counted))


def last(samples: Samples) -> Floats:
    """Return the quantiles, at the probabilities `LEVELS`, of the report at the last position; normalized, with noise.

    Each sample's normal distribution is represented by its own quantiles at `LEVELS`.
    """
    curve = samples.curves[:, -1]
    counted = samples.usable[:, -1] & (samples.sigmas > 0)
    points = curve[counted, None] + samples.sigmas[counted, None] * ndtri(LEVELS)
    return np.asarray(np.quantile(points, LEVELS, method="hazen"))
