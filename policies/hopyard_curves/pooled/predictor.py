"""The predictor plugin `pooled`: combines the prediction from other curves with that of `grid`."""

from __future__ import annotations

from math import exp
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hopyard.predictor import LEVELS, Prediction, Predictor, Question
from hopyard_curves.grid import GridPredictor
from hopyard_curves.metric_normalization import Scale
from hopyard_curves.pooled.alignment import Aligned, align, read, runs
from hopyard_curves.pooled.regression_ensemble import (
    DECISIVENESS,
    LEAST,
    CurveForecast,
    EnsembleScore,
    predict_continuation,
)

Floats = NDArray[np.float64]

TRUST: Final = 1.0
"""Number of similar reference curves at a position for which the prediction from them and that of `grid` have equal weight."""
FAITH: Final = 0.5
"""Prior weight of the prediction that uses earlier experiments."""
KNOTS: Final = 32
"""Maximum number of future positions predicted from reference curves; the rest is interpolated."""
_USUAL: Final = 100.0
_CLEAR: Final = 50.0
_LEVELS: Final = np.array(LEVELS)


class PooledPredictor(Predictor):
    """Predicts a curve from the experiment's other curves, running ones included, and from those of earlier experiments.

    A reference curve is the curve of another job. The progress of reference curves from the curve's last position is regressed
    on their level and slope there, by several experts (regressions). Experts differ in the number of past reports that the
    level averages, and in whether they use all reference curves or mainly similar ones. Each expert is weighted by how well it
    predicts these curves from one another. The predictive distribution is that of the residuals, so it may have several peaks.
    With K similar reference curves at a position, this prediction has weight K^2 / (K^2 + 1); the prediction of `grid`, which
    uses this curve alone, has the remaining weight. Without other curves the result is that of `grid`.

    Curves of earlier experiments, together with those of this one, give a second prediction. The two predictions are
    mixed by how well each predicts this experiment's curves from the others. If too few curves exist to compare them, both
    have the same weight.

    Args:
        **parameters: Not allowed: the predictor has no parameters.

    Raises:
        PredictorParameterError: Any parameter is given.
    """

    reads: ClassVar[Literal["nothing", "curves"]] = "curves"

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        self._alone = GridPredictor()

    def predict(self, question: Question) -> Prediction:
        """Predict the question's curve from the curves of other jobs and from its own reports.

        Raises:
            NotPredictableError: The curve has no finite value.
        """
        curve = read(question.curve)
        alone = self._alone.predict(question)
        others, earlier = runs(question.others), runs(question.earlier)
        if not alone.positions or not (others or earlier):
            return alone
        usual = _usual([run.reports.values for run in others or earlier])
        scale = Scale.of(question, np.concatenate((curve.reports.values, usual)))
        future = _knots(alone.positions)
        own = align(scale, curve, others, future)
        foreseen = None if own is None else predict_continuation(own)
        without = alone if own is None or foreseen is None else _combined(question, scale, own, foreseen, alone)
        count = 0 if own is None else len(own.before)
        every = align(scale, curve, [*others, *earlier], future) if earlier else None
        if every is None or len(every.before) == count:
            return without
        judged = None if foreseen is None else foreseen.judgement
        told = predict_continuation(every, None if judged is None else (count, judged.position))
        faith = FAITH if judged is None or told.judgement is None else _faith(judged, told.judgement)
        return _mixture(without, _combined(question, scale, every, told, alone), faith)


def _usual(values: list[Floats]) -> Floats:
    """Concatenate the values of curves and remove extreme outliers, such as those of diverged training.

    An outlier is farther than `_USUAL` times the interquartile range from the median. At least one curve must have a value.
    """
    together = np.concatenate(values)
    low, middle, high = np.quantile(together, (0.25, 0.5, 0.75))
    kept = np.abs(together - middle) <= _USUAL * (high - low)
    return np.asarray(together[kept] if high > low else together)


def _knots(positions: tuple[int, ...]) -> Floats:
    """Return every n-th future position, counted back from the last one, with the smallest n that gives at most `KNOTS`."""
    return np.array(positions[:: -max(1, -(-len(positions) // KNOTS))][::-1], dtype=np.float64)


def _faith(without: EnsembleScore, within: EnsembleScore) -> float:
    """Return the weight (0..1) of the prediction that uses earlier experiments.

    It is `FAITH` if both errors are equal, and larger if `within` has the smaller error. The difference of the errors has the more
    effect, the more reference curves `without` represents.

    Args:
        without: The error with which the experiment's own curves predict one another.
        within: The error for the same curves if earlier experiments' curves are used too.
    """
    least = max(min(without.error, within.error), LEAST)
    evidence = DECISIVENESS * without.runs * (without.error - within.error) / least
    odds = FAITH / (1 - FAITH) * exp(min(max(evidence, -_CLEAR), _CLEAR))
    return odds / (1 + odds)


def _mixture(one: Prediction, other: Prediction, weight: float) -> Prediction:
    """Return the mixture of two predictions with the same positions; `weight` is the probability of `other`.

    Args:
        one: The first prediction.
        other: The second prediction, with the same positions.
        weight: The weight of `other`, in [0, 1]; that of `one` is 1 - `weight`.
    """
    mean, deviation, reaches = (
        [np.array(getattr(each, name)) for each in (one, other)] for name in ("mean", "deviation", "reaches")
    )
    apart = mean[1] - mean[0]
    spread = (1 - weight) * deviation[0] ** 2 + weight * deviation[1] ** 2 + weight * (1 - weight) * apart**2
    return Prediction(
        one.positions,
        tuple((mean[0] + weight * apart).tolist()),
        tuple(np.sqrt(spread).tolist()),
        tuple((reaches[0] + weight * (reaches[1] - reaches[0])).tolist()),
        tuple(_mixed(np.array(one.final), np.array(other.final), weight).tolist()),
    )


def _combined(
    question: Question, scale: Scale, aligned: Aligned, foreseen: CurveForecast, alone: Prediction
) -> Prediction:
    pooled = foreseen.distribution
    there = np.array(alone.positions) <= aligned.ahead[-1]

    def between(values: Floats) -> Floats:
        return np.asarray(np.interp(np.array(alone.positions)[there], aligned.ahead, values))

    weight = between(foreseen.support**2 / (foreseen.support**2 + TRUST**2))
    expected = np.sqrt(np.maximum(pooled.variance - aligned.late_noise**2, 0.0))
    means, deviations = scale.moments(pooled.mean, expected)
    mean, deviation = np.array(alone.mean), np.array(alone.deviation)
    apart = between(scale.clipped(means)) - mean[there]
    spread = weight * between(deviations) ** 2 + (1 - weight) * (deviation[there] ** 2 + weight * apart**2)
    mean[there] += weight * apart
    deviation[there] = np.sqrt(spread)
    reaches = np.array(alone.reaches)
    if question.target is not None:
        chances = scale.possible(question.target, pooled.above(float(scale.to_unit(question.target))))
        reaches[there] += weight * (between(chances) - reaches[there])
    final = np.array(alone.final)
    if there[-1]:
        points = scale.clipped(scale.from_unit(pooled.quantiles(-1, _LEVELS)))
        final = _mixed(final, np.sort(points), float(weight[-1]))
    return Prediction(
        alone.positions,
        tuple(mean.tolist()),
        tuple(deviation.tolist()),
        tuple(np.clip(reaches, 0.0, 1.0).tolist()),
        tuple(final.tolist()),
    )


def _mixed(first: Floats, second: Floats, weight: float) -> Floats:
    """Return the quantiles at `LEVELS` of a mixture of two distributions.

    Args:
        first: The quantiles of the first distribution at `LEVELS`.
        second: The quantiles of the second distribution at `LEVELS`.
        weight: The weight of the second distribution, in [0, 1].
    """
    points = np.concatenate((first, second))
    weights = np.repeat((1 - weight, weight), first.size) / first.size
    order = np.argsort(points, kind="stable")
    points, weights = points[order], weights[order]
    return np.asarray(np.interp(_LEVELS, np.cumsum(weights) - weights / 2, points))
