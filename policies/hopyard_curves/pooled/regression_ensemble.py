"""An ensemble of weighted regressions that predicts the progress of a curve from its past.

A *reference curve* is the curve of another job that trained further (`alignment.Aligned`); values are normalized (0
worst, 1 best). Each member of the ensemble, called an *expert*, is one regression. It describes a curve by its level (a
mean of the reports with weights that decay into the past) and its slope (the level minus that of the first half of the
curve). The progress of a reference curve, its later value minus its level, is regressed linearly on both. The prior is
the same for all metrics. By it, the fraction `_PERSISTENCE` of a difference in level between two curves remains later (less
if differences in level are mostly noise), and the fraction `_MOMENTUM` of a difference in slope is added. An expert with a
finite kernel width gives similar reference curves more weight, in the regression and in the distribution of the residuals.
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
"""Memories of the level: the fractions of the curve's length over which the weight of a report decays to 1/e."""
WIDTHS: Final = (None, 2.0, 1.0, 0.5)
"""Kernel widths for the weights of similar curves, in standard deviations of the reference curves; None: all have equal weight."""
_KIN: Final = 2.0
"""Kernel width for `CurveForecast.support`, in standard deviations of the reference curves."""
_BACKGROUND: Final = 1e-3
"""The weight of a reference curve that is not similar at all."""
_PERSISTENCE: Final = 0.75
"""Prior coefficient of a difference in level without noise; `_MOMENTUM` is that of a difference in slope."""
_MOMENTUM: Final = 0.2
_PRIOR_SPREAD: Final = (0.2, 0.3)
_FORESIGHT: Final = 0.2
"""Prior coefficient of a difference in the prediction from configurations."""
_FORESIGHT_SPREAD: Final = 0.3
_RESOLUTION: Final = 3.0
"""Levels closer than this many standard deviations of noise differ linearly, others logarithmically."""
_LEAST_SPREAD: Final = 0.5
DECISIVENESS: Final = 0.3
"""The weight of one reference curve's score in the choice of experts."""
_JUDGED: Final = 48
"""Maximum number of reference curves whose leave-one-out scores are computed to weight the experts."""
_ENOUGH: Final = 3
_KERNEL: Final = 0.2
"""Width of the kernel around each residual, in standard deviations of the residuals."""
_ESTIMATION: Final = 0.3
"""Fraction of the regression's uncertainty in the kernel; leave-one-out residuals contain the rest."""
LEAST: Final = 1e-5


@dataclass(frozen=True, slots=True)
class _View:
    """The features of the reference curves and of the curve to predict, for one expert, with the priors of its regression.

    An expert is one regression of the ensemble. It explains the progress of the reference curves (curves of other jobs), their
    later values minus their levels, by these features.

    Attributes:
        runs: One row for each reference curve: the level, a mean of its reports with weights that decay into the past; if there
            are at least two reports, the slope, the level minus that of the first half; the final value predicted from its
            configuration, if there is such a prediction.
        curve: The same features of the curve to predict.
        prior: Prior means of the coefficients.
        spreads: Prior standard deviations of the coefficients.
        width: Kernel width for the weights of similar reference curves; None: all have equal weight.
        near_runs: The features of the reference curves, scaled so that distances measure similarity.
        near_curve: The features of the curve to predict, scaled in the same manner.
    """

    runs: Floats
    curve: Floats
    prior: Floats
    spreads: Floats
    width: float | None
    near_runs: Floats
    near_curve: Floats

    def weights(self, places: Floats) -> Floats:
        """Return the weights of all reference curves (columns) in the regressions, one row for each row of `places`.

        Reference curves with similar features have larger weights. All weights are 1 if the expert has no kernel width.

        Args:
            places: The scaled features of the curves to predict, such as `near_curve`, one curve in each row.
        """
        if self.width is None:
            return np.ones((len(places), len(self.runs)))
        return self.similarity(places, self.width) + _BACKGROUND

    def similarity(self, places: Floats, width: float) -> Floats:
        """Return the similarity of each reference curve (column) to each of `places` (row): 1 for equal features, else less.

        Args:
            places: The scaled features of curves, such as `near_curve`, one curve in each row.
            width: The kernel width: the distance at which the similarity is exp(-0.5).
        """
        squares = ((places[:, None, :] - self.near_runs[None]) ** 2).sum(axis=2)
        return np.asarray(np.exp(-0.5 * squares / width**2))


@dataclass(frozen=True, slots=True)
class EnsembleScore:
    """The score of an ensemble of regressions: the error with which it predicts known reference curves, each from the others.

    A reference curve is the curve of another job. Scores decide how much a prediction from other curves is trusted.

    Attributes:
        position: The position at which values were predicted.
        runs: The number of reference curves that `error` represents; if there are many, only a sample of them was predicted.
        error: The mean CRPS (continuous ranked probability score, smaller is better) of the predictions of normalized values.
    """

    position: float
    runs: int
    error: float


@dataclass(frozen=True, slots=True)
class CurveForecast:
    """The continuation of a curve, predicted from reference curves (curves of other jobs) by an ensemble of regressions.

    Attributes:
        distribution: The distribution of the curve's report at each position of `Aligned.ahead`, as normalized values.
        support: The number of reference curves similar to the curve that reached each of these positions (a sum of
            similarities).
        judgement: The score with which the ensemble predicts reference curves from one another; None: too few of them reached
            any of these positions.
    """

    distribution: NormalMixtures
    support: Floats
    judgement: EnsembleScore | None


def predict_continuation(aligned: Aligned, judge: tuple[int, float] | None = None) -> CurveForecast:
    """Predict the continuation of a curve from reference curves, the curves of other jobs.

    The prediction is the weighted mixture of those of several experts. Each expert is a regression with its own features and
    weights of the reference curves.

    Args:
        aligned: The curve and the reference curves.
        judge: (n, position): the test by which the experts are weighted. Each expert predicts each of the first n reference
            curves from all others at this position, one of `Aligned.ahead`; a smaller error gives a larger weight. None: all
            reference curves, at the last position that at least three of them reached; if there is none, all experts have
            equal weight, and the result has no judgement.
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
    # The fraction of differences in level that is not noise; the curve counts as one run.
    real = max(0.0, 1 - noise**2 / (1 + 0.6 * max(reports, 0.5)) / max(seen[:, 0].var(ddof=1), LEAST**2))
    prior[0] += _PERSISTENCE * real
    middle = np.median(runs, axis=0)
    near = np.arcsinh((seen - middle) / (_RESOLUTION * noise))
    near /= np.maximum(near[:-1].std(axis=0), _LEAST_SPREAD)
    return _View(runs, curve, np.array(prior), np.array(spreads), width, near[:-1], near[-1])


def _features(values: Floats, at: Floats, memory: float) -> Floats:
    """Return one row of features for each row of `values`: level and slope, or only the level if there is one report.

    The level of a curve is the mean of its values, with weights that decay exponentially into the past. The slope is the level
    minus the level of the first half of the curve.

    Args:
        values: Normalized curves, one in each row, at the positions `at`.
        at: Ascending positions.
        memory: The fraction of the last position over which the weight of a value decays to 1/e.
    """
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
    """Return the index in `Aligned.ahead` of the last position that at least `_ENOUGH` reference curves reached; None: none."""
    enough = np.flatnonzero(aligned.reached.sum(axis=0) >= _ENOUGH)
    return int(enough[-1]) if enough.size else None


def _trusts(aligned: Aligned, views: list[_View], column: int, first: int) -> tuple[Floats, EnsembleScore]:
    """Weight the experts (the regressions of the ensemble) by their leave-one-out CRPS at one position; a smaller one weighs more.

    Args:
        aligned: The curve and the reference curves (curves of other jobs).
        views: The features and priors of each expert.
        column: The index of the position in `Aligned.ahead`.
        first: The number of reference curves, from the first, that are predicted, each from all others that reached the
            position.

    Returns:
        The weights of the experts, whose sum is 1, and the joint score of the weighted ensemble.
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
    return trusts, EnsembleScore(float(aligned.ahead[column]), own, float(trusts @ found))
