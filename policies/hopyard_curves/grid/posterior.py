"""The posterior of a curve in units (0 the worst, 1 the best), in closed form.

    y(x) = level + rise * shape(x) + wander(x) + noise

- shape: one of `shapes`, 0 at the first report and 1 at the horizon;
- level, rise: normal, integrated exactly; the rise has a scale on a grid. The rise is not negative, and what is expected at the end is
  not above the limit: each grid point counts by the posterior chance of that, and goes on with the moments of what is left;
- wander: Brownian in ln x, what a smooth shape misses: plateaus, steps of the learning rate, drift. It goes on beyond the last report;
- noise: white, with a variance that falls with x, so that late reports count more; its scale is on a grid, as is wander's to noise.

A shape, a scale of the rise, of noise and of wander make a component, in which the future is normal. Evidence is tempered, because
all of these are wrong a little.
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
"""Mean and deviation of the level at the first report."""
RISE: Final = 2.3
"""The rise's mean, in its scale."""
RISES: Final = ((0.081, 0.16), (0.23, 0.84))
"""The rise's scale (its deviation), and how likely each is."""
NOISES: Final = (0.0029, 0.0039, 0.0052, 0.0068, 0.0091)
"""The deviation of noise at the last report, all as likely."""
WANDERS: Final = ((0.0089, 0.68), (0.31, 0.12), (6.9, 0.2))
"""The deviation of wander over a factor of e, in deviations of noise, and how likely each is."""
FALL: Final = 2.5
"""The variance of noise falls as x^-FALL."""
TEMPER: Final = 0.32
"""The power to which evidence is taken."""
SPIKE: Final = (0.05, 10.0)
"""A report further from the median of five than so many units, and so many median distances above that, is a spike."""
MOST: Final = 48
"""More reports are averaged into so many groups of neighbours."""
KEPT: Final = 0.99
"""Components that hold this much of the posterior are kept."""

_SCALES: Final = np.asarray([scale for scale, _ in RISES])[None, None, None, :]
_SIGMA2: Final = np.square(NOISES)[None, None, :, None]
_PRIOR: Final = (
    np.log([odds for _, odds in WANDERS])[:, None, None, None]
    + np.log(ODDS)[None, :, None, None]
    + np.log([odds for _, odds in RISES])[None, None, None, :]
)
"""Of components; their axes are everywhere: wander, shape, noise, scale of the rise."""


@dataclass(frozen=True, slots=True)
class _Design:
    """What depends on positions alone. Axes: w wanders, s shapes, n noises, r scales of the rise, i reports, f future ones.

    Attributes:
        precision: Inverse of the reports' covariance, in variances of noise; (w, i, i).
        regression: Transposed regressors times that; (w, s, 2, i).
        covariance: Of level and rise: (level, level), (level, rise), (rise, rise); each (w, s, n, r).
        normaliser: Of the log evidence; (w, 1, n, r) or more.
        pull: How wander beyond the last report follows from what is left of each report; (w, i).
        slope: How much less level and rise count there, as pull takes some of them back; (w, s, 2).
        future: Shapes at the future positions; (s, f).
        wander: The variance of wander there, in variances of noise; (w, f).
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
    """Means and covariance of level and rise in each component."""

    level: Floats
    rise: Floats
    level_level: Floats
    level_rise: Floats
    rise_rise: Floats


def extrapolate(abscissae: Floats, values: Floats, future: Floats, limit: float = 1.0) -> Mixture:
    """What a curve may become at future abscissae.

    Args:
        abscissae: Of the reports, counted in reports: 1 for the first; rising, >= 1, at least one.
        values: The reports, in units.
        future: Later abscissae, rising; the last one is the horizon.
        limit: No curve ends above; inf: not known.
    """
    steady = _steady(values)
    abscissae, values = abscissae[steady], values[steady]
    if isfinite(limit):
        values = without_steps(values)
    noise = _noise(values)
    points, seen, counts = _grouped(abscissae, values)
    design = _design(points.tobytes(), counts.tobytes(), future.tobytes())
    left = seen - LEVEL[0]
    # (w, s, 2, 1, 1), so that level and rise spread over noises and scales.
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
    # Beyond the last report, wander's covariance with what it was is what it was then.
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
    """Given that per_level * level + per_rise * rise is at most a bound: the log chance of that, and the moments then."""
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
    """The fewest components that hold `KEPT` of the weight."""
    order = np.argsort(-weights, axis=None, kind="stable")
    held = np.cumsum(weights.ravel()[order])
    return order[: int(np.searchsorted(held, KEPT)) + 1]


def _steady(values: Floats) -> NDArray[np.bool_]:
    """Which reports are no spikes: none of the first and last two is one."""
    steady = np.ones(len(values), dtype=bool)
    if len(values) >= 5:
        around = np.median(np.lib.stride_tricks.sliding_window_view(values, 5), axis=1)
        distance = np.abs(values[2:-2] - around)
        steady[2:-2] = distance <= SPIKE[0] + SPIKE[1] * np.median(distance)
    return steady


def _grouped(abscissae: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
    """Means of at most `MOST` groups of neighbours, and how many reports each is of."""
    count = len(values)
    if count <= MOST:
        return abscissae, values, np.ones(count)
    firsts = np.arange(MOST) * count // MOST
    sizes = np.diff(firsts, append=count).astype(np.float64)
    return np.add.reduceat(abscissae, firsts) / sizes, np.add.reduceat(values, firsts) / sizes, sizes


def _noise(values: Floats) -> float:
    """The variance of a report around its neighbours, over the later half; 0 for fewer than three reports."""
    bends = values[1:-1] - (values[:-2] + values[2:]) / 2
    return float(np.mean(bends[len(bends) // 2 :] ** 2) / 1.5) if len(bends) else 0.0
