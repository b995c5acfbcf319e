"""The posterior distribution of a learning curve for the predictor `grid`, in closed form.

    y(x) = level + rise * shape(x) + wander(x) + noise

y is a normalized report (0 is the worst, 1 the best expected value; see `metric_normalization.Scale`). x is the abscissa:
the position as a count of the curve's reports (1 for the first; see `reports.abscissae`). The horizon is the last x of
interest.

- shape: one of `shapes`, 0 at the first report and 1 at the horizon;
- level, rise: normal, integrated exactly; the scale (prior standard deviation) of the rise is on a grid. The rise is
  not negative, and the expected value at the horizon is not above a given upper limit (the argument `limit` of
  `extrapolate`): each grid point is weighted by the posterior probability of these conditions and uses the truncated
  moments;
- wander: Brownian motion in ln x, for deviations from a smooth shape: plateaus, steps of the learning rate, drift. It
  continues after the last report;
- noise: white, with a variance that decreases with x, so that late reports weigh more; its scale and the ratio of
  wander to noise are on a grid.

A component is a combination of one shape with one scale each of the rise, of the noise and of the wander. Within a
component, the future is normally distributed. The evidence (marginal likelihood) of a component is raised to the power
`TEMPER`, because no component is exactly right.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from functools import lru_cache
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopyard_curves.grid.mixture import Mixture
from hopyard_curves.grid.normal import truncated
from hopyard_curves.grid.shapes import ODDS, shapes
from hopyard_curves.grid.step_detection import without_steps

Floats = NDArray[np.float64]

LEVEL: Final = (-0.29, 0.13)
"""Mean and standard deviation of the level at the first report."""
RISE: Final = 2.3
"""Mean of the rise, in units of its scale."""
RISES: Final = ((0.081, 0.16), (0.23, 0.84))
"""Scales (standard deviations) of the rise and their prior probabilities."""
NOISES: Final = (0.0029, 0.0039, 0.0052, 0.0068, 0.0091)
"""Standard deviations of noise at the last report, with equal prior probabilities."""
WANDERS: Final = ((0.0089, 0.68), (0.31, 0.12), (6.9, 0.2))
"""Standard deviations of wander over a factor of e, relative to noise, and their prior probabilities."""
FALL: Final = 2.5
"""The variance of noise decreases as x^-FALL."""
TEMPER: Final = 0.32
"""Exponent of the evidence."""
SPIKE: Final = (0.05, 10.0)
"""Spike detection: minimum distance from the median of five reports, normalized, and in median distances on top of it."""
MOST: Final = 48
"""Maximum number of reports; more are averaged in groups of neighbours."""
KEPT: Final = 0.99
"""Fraction of the posterior that the kept components hold."""

_SCALES: Final = np.asarray([scale for scale, _ in RISES])[None, None, None, :]
_SIGMA2: Final = np.square(NOISES)[None, None, :, None]
_PRIOR: Final = (
    np.log([odds for _, odds in WANDERS])[:, None, None, None]
    + np.log(ODDS)[None, :, None, None]
    + np.log([odds for _, odds in RISES])[None, None, None, :]
)
"""Log prior of components. The axes of all component arrays are wander, shape, noise, scale of the rise."""


@dataclass(frozen=True, slots=True)
class _Design:
    """The part of the posterior that depends on the abscissae only, not on the values of the reports.

    The model of a curve is level + rise * shape(x) + wander(x) + noise: `shape` rises from 0 at the first report to 1 at the
    horizon, the wander is a Brownian motion in ln x, and the noise is independent for each report.

    Axes of the arrays: w scales of the wander (`WANDERS`), s shapes, n scales of the noise (`NOISES`), r scales of the rise
    (`RISES`), i reports, f future reports.

    Attributes:
        precision: Inverse covariance of the reports, relative to the variance of noise; (w, i, i).
        regression: Transposed regressors (1 for the level, the shape for the rise) times `precision`; (w, s, 2, i).
        covariance: Posterior covariance of level and rise: (level, level), (level, rise), (rise, rise); each (w, s, n,
            r).
        normaliser: The part of the log evidence that does not depend on the values of the reports; broadcasts to (w, s,
            n, r).
        pull: Weight of each report's residual (its value minus level + rise * shape) in the expected wander after the last
            report; (w, i).
        slope: The amounts by which the coefficients of level and rise in an expected future value are smaller than 1 and
            shape(x), because `pull` applies to residuals, from which level and rise are subtracted; (w, s, 2).
        future: Values of the shapes at the future abscissae; (s, f).
        wander: Variance of the wander at the future abscissae, relative to the variance of noise; (w, f).
    """

    precision: Floats
    regression: Floats
    covariance: tuple[Floats, Floats, Floats]
    normaliser: Floats
    pull: Floats
    slope: Floats
    future: Floats
    wander: Floats


@dataclass(frozen=True, slots=True)
class _Line:
    """Posterior means and covariances of level and rise in each component of the mixture.

    The model of a curve is level + rise * shape(x) + wander(x) + noise; a component is one shape with one scale (standard
    deviation) each of wander, noise and rise. Each array has the axes (scales of the wander, shapes, scales of the noise,
    scales of the rise).

    Attributes:
        level: Mean of the level.
        rise: Mean of the rise.
        level_level: Variance of the level.
        level_rise: Covariance of level and rise.
        rise_rise: Variance of the rise.
    """

    level: Floats
    rise: Floats
    level_level: Floats
    level_rise: Floats
    rise_rise: Floats


def extrapolate(abscissae: Floats, values: Floats, future: Floats, limit: float = 1.0) -> Mixture:
    """Return the predictive distribution of a curve at future abscissae, in normalized values (0 worst, 1 best).

    Spikes (single reports far from their neighbours, see `_steady`) are removed from the reports first. With a finite `limit`,
    sudden lasting rises are removed too (`step_detection.without_steps`).

    Args:
        abscissae: Abscissae of the reports (their positions as a count of reports; 1 is the first); ascending, at least
            one.
        values: The normalized reports, in the same order.
        future: Later abscissae, ascending, at least one; the last one is the horizon.
        limit: Upper limit of the curve's expected value at the horizon, normalized; inf: no limit.
    """
    steady = _steady(values)
    abscissae, values = abscissae[steady], values[steady]
    if isfinite(limit):
        values = without_steps(values)
    noise = _noise(values)
    points, seen, counts = _grouped(abscissae, values)
    design = _design(points.tobytes(), counts.tobytes(), future.tobytes())
    left = seen - LEVEL[0]
    # (w, s, 2, 1, 1), so that level and rise broadcast over noises and scales.
    along = (design.regression @ left)[..., None, None]
    by_level = along[:, :, 0] / _SIGMA2
    by_rise = along[:, :, 1] / _SIGMA2 + RISE / _SCALES
    level_level, level_rise, rise_rise = design.covariance
    line = _Line(
        level=level_level * by_level + level_rise * by_rise,
        rise=level_rise * by_level + rise_rise * by_rise,
        level_level=level_level,
        level_rise=level_rise,
        rise_rise=rise_rise,
    )
    misfit = (
        (design.precision @ left @ left)[:, None, None, None] / _SIGMA2 - by_level * line.level - by_rise * line.rise
    )
    evidence = design.normaliser - 0.5 * misfit
    chances, line = _at_most(line, 0.0, -1.0, 0.0)
    evidence += chances
    if isfinite(limit):
        at_end = 1.0 - design.slope[:, :, :, None, None]
        room = limit - LEVEL[0] - (design.pull @ left)[:, None, None, None]
        chances, line = _at_most(line, at_end[:, :, 0], at_end[:, :, 1], room)
        evidence += chances
    log_weights = TEMPER * evidence + _PRIOR
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()

    kept = _heaviest(weights)
    w, s, n, _ = np.unravel_index(kept, weights.shape)
    here = _Line(*(np.broadcast_to(part, weights.shape).ravel()[kept, None] for part in astuple(line)))
    heaviest = weights.ravel()[kept]
    per_level = 1.0 - design.slope[w, s, 0, None]
    per_rise = design.future[s] - design.slope[w, s, 1, None]
    means = LEVEL[0] + (design.pull @ left)[w, None] + per_level * here.level + per_rise * here.rise
    variances = per_rise * (2 * per_level * here.level_rise + per_rise * here.rise_rise)
    variances += per_level**2 * here.level_level + _SIGMA2[0, 0, n, 0, None] * design.wander[w]
    return Mixture(heaviest / heaviest.sum(), means, variances, noise)


@lru_cache(maxsize=64)
def _design(points: bytes, counts: bytes, future: bytes) -> _Design:
    x, ahead = np.frombuffer(points), np.frombuffer(future)
    horizon = float(ahead[-1])
    logs = np.log(x)
    white = (x / x[-1]) ** -FALL / np.frombuffer(counts)
    drift = np.square([wander for wander, _ in WANDERS])
    covariance = drift[:, None, None] * np.minimum.outer(logs, logs) + np.diag(white)
    precision = np.linalg.inv(covariance)
    _, log_determinant = np.linalg.slogdet(covariance)
    regressors = np.stack((np.ones((len(ODDS), len(x))), shapes(x, horizon)), axis=1)
    regression = regressors @ precision[:, None]
    gram = regression @ regressors.transpose(0, 2, 1)
    # Beyond the last report, the covariance of wander with the past equals its covariance at the last report.
    shared = drift[:, None] * logs
    pull = (precision @ shared[:, :, None])[:, :, 0]
    first = gram[:, :, 0, 0, None, None] / _SIGMA2 + LEVEL[1] ** -2
    cross = gram[:, :, 0, 1, None, None] / _SIGMA2
    second = gram[:, :, 1, 1, None, None] / _SIGMA2 + _SCALES**-2.0
    determinant = first * second - cross**2
    normaliser = -0.5 * (
        len(x) * np.log(_SIGMA2)
        + log_determinant[:, None, None, None]
        + np.log(determinant)
        + 2 * np.log(LEVEL[1] * _SCALES)
        + RISE**2
    )
    return _Design(
        precision,
        regression,
        (second / determinant, -cross / determinant, first / determinant),
        normaliser,
        pull,
        np.einsum("spi,wi->wsp", regressors, pull),
        shapes(ahead, horizon),
        drift[:, None] * np.log(ahead) - (pull * shared).sum(axis=1)[:, None],
    )


def _at_most(
    line: _Line, per_level: Floats | float, per_rise: Floats | float, bound: Floats | float
) -> tuple[Floats, _Line]:
    """Condition level and rise on per_level * level + per_rise * rise <= bound, in each component.

    Args:
        line: Means and covariances of level and rise without the condition.
        per_level: The factor of the level.
        per_rise: The factor of the rise.
        bound: The upper bound of the weighted sum.

    Returns:
        The log probability of the condition in each component, and the means and covariances of level and rise under
        it.
    """
    with_level = per_level * line.level_level + per_rise * line.level_rise
    with_rise = per_level * line.level_rise + per_rise * line.rise_rise
    variance = per_level * with_level + per_rise * with_rise
    deviation = np.sqrt(variance)
    chances, below, less = truncated((bound - per_level * line.level - per_rise * line.rise) / deviation)
    below, less = below / deviation, less / variance
    return chances, _Line(
        level=line.level - with_level * below,
        rise=line.rise - with_rise * below,
        level_level=line.level_level - with_level**2 * less,
        level_rise=line.level_rise - with_level * with_rise * less,
        rise_rise=line.rise_rise - with_rise**2 * less,
    )


def _heaviest(weights: Floats) -> NDArray[np.intp]:
    """Return the flat indices of the fewest components whose weights sum to at least `KEPT`, heaviest first; all weights sum to 1."""
    order = np.argsort(-weights, axis=None, kind="stable")
    held = np.cumsum(weights.ravel()[order])
    return order[: int(np.searchsorted(held, KEPT)) + 1]


def _steady(values: Floats) -> NDArray[np.bool_]:
    """Return a mask of the reports: True for a normal report, False for a spike.

    The distance of a report is that from the median of the five reports around it, itself included. A spike has a distance of
    more than `SPIKE[0]` + `SPIKE[1]` times the median distance. The first two and the last two reports are never spikes.
    """
    steady = np.ones(len(values), dtype=bool)
    if len(values) >= 5:
        around = np.median(np.lib.stride_tricks.sliding_window_view(values, 5), axis=1)
        distance = np.abs(values[2:-2] - around)
        steady[2:-2] = distance <= SPIKE[0] + SPIKE[1] * np.median(distance)
    return steady


def _grouped(abscissae: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
    """Average neighbouring reports, so that at most `MOST` points remain.

    Args:
        abscissae: Abscissae of the reports, ascending.
        values: The normalized reports, in the same order.

    Returns:
        The mean abscissa, the mean value and the number of reports of each group of neighbours.
    """
    count = len(values)
    if count <= MOST:
        return abscissae, values, np.ones(count)
    firsts = np.arange(MOST) * count // MOST
    sizes = np.diff(firsts, append=count).astype(np.float64)
    return np.add.reduceat(abscissae, firsts) / sizes, np.add.reduceat(values, firsts) / sizes, sizes


def _noise(values: Floats) -> float:
    """Return the variance of the noise of a single report, estimated over the later half of `values`; 0 for fewer than three.

    The estimate is the mean squared difference of a report from the mean of its two neighbours, divided by 1.5, the factor by
    which the neighbours' noise increases it.
    """
    bends = values[1:-1] - (values[:-2] + values[2:]) / 2
    return float(np.mean(bends[len(bends) // 2 :] ** 2) / 1.5) if len(bends) else 0.0
