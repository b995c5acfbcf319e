"""Weighted regressions of how curves went on, on how they began: several, weighted by how well they would have served so far.

Each expert sees a curve through its level (a mean with weights that fall off into the past) and its slope (the level less that of
the first half). How a run went on from its level is linear in both, with a prior that makes sense for any metric: a high level
persists, less so the more of it is noise, and part of the slope goes on. An expert that looks for analogues gives runs that were
similar up to here more weight, in the regression and in the distribution of what is left over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopyard_curves.pooled.alignment import Aligned
from hopyard_curves.pooled.configuration_prior import forecasts
from hopyard_curves.pooled.mixture import NormalMixtures
from hopyard_curves.pooled.regression import fit

Floats = NDArray[np.float64]

MEMORIES: Final = (0.05, 0.2)
"""How far back a level looks, as a part of the curve: the weight of a report falls to 1/e over this."""
WIDTHS: Final = (None, 2.0, 1.0, 0.5)
"""How similar an analogue is, in standard deviations of the runs; None: all runs alike."""
_KIN: Final = 2.0
"""How far away a run may be to support a prediction, likewise: then it counts exp(-1/2)."""
_BACKGROUND: Final = 1e-3
"""The weight of a run that is nothing like the curve."""
_PERSISTENCE: Final = 0.75
"""What the prior expects of a difference of one in level, were there no noise, and of one in slope (with `_MOMENTUM`)."""
_MOMENTUM: Final = 0.2
_PRIOR_SPREAD: Final = (0.2, 0.3)
_FORESIGHT: Final = 0.2
"""What the prior expects of a difference of one in what configurations foretell."""
_FORESIGHT_SPREAD: Final = 0.3
_RESOLUTION: Final = 3.0
"""Levels closer together than this many deviations of the noise differ linearly, others by the logarithm."""
_LEAST_SPREAD: Final = 0.5
DECISIVENESS: Final = 0.3
"""How much one run's scores count in choosing among experts."""
_JUDGED: Final = 48
"""At most so many runs are predicted from the others for that."""
_ENOUGH: Final = 3
_KERNEL: Final = 0.2
"""Width of the kernel around each residual, in standard deviations of the residuals."""
_ESTIMATION: Final = 0.3
"""The share of the regression's own uncertainty that the kernel carries; residuals left out of their own fit carry some."""
LEAST: Final = 1e-5


@dataclass(frozen=True, slots=True)
class _View:
    """What an expert sees: `runs` is one row a run, `curve` one number a feature: level, then slope where there is one."""

    runs: Floats
    curve: Floats
    prior: Floats
    spreads: Floats
    width: float | None
    near_runs: Floats
    near_curve: Floats

    def weights(self, places: Floats) -> Floats:
        """The weights of all runs for something at each of `places` (a row each)."""
        if self.width is None:
            return np.ones((len(places), len(self.runs)))
        return self.similarity(places, self.width) + _BACKGROUND

    def similarity(self, places: Floats, width: float) -> Floats:
        """How similar each run is to something at each of `places`: 1 for the same, less with the distance."""
        squares = ((places[:, None, :] - self.near_runs[None]) ** 2).sum(axis=2)
        return np.asarray(np.exp(-0.5 * squares / width**2))


@dataclass(frozen=True, slots=True)
class Judgement:
    """How well runs were predicted, each from the others.

    Attributes:
        position: Where.
        runs: How many.
        error: Their mean CRPS, in units.
    """

    position: float
    runs: int
    error: float


@dataclass(frozen=True, slots=True)
class CurveForecast:
    """How a curve goes on if it is one of the experiment's runs.

    Attributes:
        distribution: Of its report at each of `Aligned.ahead`, in units.
        support: How many runs that came there are anything like it, each.
        judgement: How well runs would have been predicted from one another; None: too few came anywhere.
    """

    distribution: NormalMixtures
    support: Floats
    judgement: Judgement | None


def foresee(aligned: Aligned, judge: tuple[int, float] | None = None) -> CurveForecast:
    """What the runs say of the curve.

    Args:
        aligned: They, and it.
        judge: Experts are chosen by how well they predict so many runs, the first ones, from all others at this position, which
            is one of `Aligned.ahead`; None: all runs, where enough came last.
    """
    noise = aligned.early_noise
    column = _furthest(aligned) if judge is None else int(np.searchsorted(aligned.ahead, judge[1]))
    first = len(aligned.before) if judge is None else judge[0]
    told = None
    if column is not None:
        rows = np.flatnonzero(aligned.reached[:, column])
        told = forecasts(aligned.configurations, rows, aligned.after[rows, column])
    views = [_view(aligned, noise, told, memory, width) for memory in MEMORIES for width in WIDTHS]
    trusts, judgement = np.full(len(views), 1 / len(views)), None
    if column is not None:
        trusts, judgement = _trusts(aligned, views, column, first)
    centres = np.zeros(aligned.after.T.shape)
    weights, variances = np.zeros_like(centres), np.zeros((len(centres), 1))
    for view, trust in zip(views, trusts, strict=True):
        allowed = view.weights(view.near_curve[None]) * aligned.reached.T
        fitted = fit(allowed, view.runs, aligned.after.T - view.runs[:, 0], view.prior, view.spreads)
        middle, doubt = fitted.at(view.curve[None])
        share, left = fitted.shares, fitted.residuals
        left = left - (share * left).sum(axis=1, keepdims=True)
        centres += trust * (view.curve[0] + middle[:, None] + left)
        weights += trust * share
        spread = _ESTIMATION * doubt + (_KERNEL**2 + 1 / np.maximum(fitted.runs - 1, 1)) * fitted.variance
        variances += trust * spread[:, None]
    kin = np.mean([view.similarity(view.near_curve[None], _KIN)[0] for view in views[:: len(WIDTHS)]], axis=0)
    spreads = np.sqrt(np.maximum(variances, max(noise, LEAST) ** 2))
    return CurveForecast(NormalMixtures(centres, weights, spreads), kin @ aligned.reached, judgement)


def _view(aligned: Aligned, noise: float, told: Floats | None, memory: float, width: float | None) -> _View:
    seen = _features(np.vstack((aligned.before, aligned.values)), aligned.at, memory)
    prior, spreads = [-1.0, _MOMENTUM][: seen.shape[1]], [*_PRIOR_SPREAD[: seen.shape[1]]]
    if told is not None:
        seen = np.column_stack((seen, told))
        prior.append(_FORESIGHT)
        spreads.append(_FORESIGHT_SPREAD)
    runs, curve = seen[:-1], seen[-1]
    reports = memory * aligned.at.size
    # How much of the differences in level is no noise; the curve itself counts as one of them.
    real = max(0.0, 1 - noise**2 / (1 + 0.6 * max(reports, 0.5)) / max(seen[:, 0].var(ddof=1), LEAST**2))
    prior[0] += _PERSISTENCE * real
    middle = np.median(runs, axis=0)
    near = np.arcsinh((seen - middle) / (_RESOLUTION * noise))
    near /= np.maximum(near[:-1].std(axis=0), _LEAST_SPREAD)
    return _View(runs, curve, np.array(prior), np.array(spreads), width, near[:-1], near[-1])


def _features(values: Floats, at: Floats, memory: float) -> Floats:
    """Level and slope of each row; with one report only the level."""
    reach = memory * at[-1]
    level = values @ _fading(at, reach)
    if at.size < 2:
        return level[:, None]
    half = at.size // 2
    earlier = values[:, :half] @ _fading(at[:half], max(reach, 0.3 * at[-1] / at.size))
    return np.column_stack((level, level - earlier))


def _fading(at: Floats, reach: float) -> Floats:
    weights = np.exp((at - at[-1]) / reach)
    return np.asarray(weights / weights.sum())


def _furthest(aligned: Aligned) -> int | None:
    """Which is the last of `Aligned.ahead` that enough runs came to."""
    enough = np.flatnonzero(aligned.reached.sum(axis=0) >= _ENOUGH)
    return int(enough[-1]) if enough.size else None


def _trusts(aligned: Aligned, views: list[_View], column: int, first: int) -> tuple[Floats, Judgement]:
    """How much each expert counts: by its scores there, had each of the first runs been predicted from all others.

    They sum to 1. How good these predictions are together goes with them.
    """
    rows = np.flatnonzero(aligned.reached[:, column])
    after = aligned.after[rows, column]
    own = int((rows < first).sum())
    judged = np.argsort(after[:own], kind="stable")[:: max(1, -(-own // _JUDGED))]
    itself = judged[:, None] == np.arange(rows.size)
    scores = []
    for view in views:
        runs = view.runs[rows]
        weights = view.weights(view.near_runs[rows[judged]])[:, rows]
        weights[itself] = 0.0
        fitted = fit(weights, runs, after - runs[:, 0], view.prior, view.spreads)
        middle, _ = fitted.at(runs[judged])
        share, left = fitted.shares, fitted.residuals
        left = left - (share * left).sum(axis=1, keepdims=True)
        points = runs[judged, :1] + middle[:, None] + left
        scores.append(NormalMixtures(points, share, np.zeros((len(points), 1))).crps(after[judged]).mean())
    found = np.array(scores)
    worse = found / max(found.min(), LEAST) - found.min() / max(found.min(), LEAST)
    trusts = np.exp(-DECISIVENESS * own * worse)
    trusts /= trusts.sum()
    return trusts, Judgement(float(aligned.ahead[column]), own, float(trusts @ found))
