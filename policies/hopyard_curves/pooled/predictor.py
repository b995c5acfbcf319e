"""The predictor `pooled`."""

from __future__ import annotations

from math import exp
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hopyard.predictor import LEVELS, Prediction, Predictor, Question
from hopyard_curves.grid import GridPredictor
from hopyard_curves.metric_normalization import Scale
from hopyard_curves.pooled.alignment import Aligned, align, read, runs
from hopyard_curves.pooled.regression_ensemble import DECISIVENESS, LEAST, CurveForecast, Judgement, foresee

Floats = NDArray[np.float64]

TRUST: Final = 1.0
"""With so many similar runs at a position, they count half there, and the curve by itself the other half."""
FAITH: Final = 0.5
"""The weight of what earlier experiments' runs say too, while too few of this one's have come anywhere to judge it."""
KNOTS: Final = 32
"""At most so many future positions are predicted from others; what lies between is interpolated."""
_USUAL: Final = 100.0
_CLEAR: Final = 50.0
_LEVELS: Final = np.array(LEVELS)


class PooledPredictor(Predictor):
    """Learns from the experiment's other curves, running ones included, and from earlier experiments', how this one will go on.

    How far a run came from where it stood is regressed on its level and its slope there, by several experts: with long and with
    short memory, over all runs or mostly over those that were similar up to here. Each counts by how well it would have
    predicted these runs from one another, and the distribution of what is to come is that of what the regression left over, so
    that it may have several peaks. A position that K runs like this one have reached is predicted with weight K^2 / (K^2 + 1)
    from them; the rest of the weight is that of `grid`, which sees this curve alone. Without other curves the answer is that of `grid`.

    Runs of earlier experiments make a second such answer, together with this one's runs. The two are mixed by how well each
    would have predicted this experiment's runs from the others; as long as that is not known, half and half.
    """

    reads: ClassVar[Literal["nothing", "curves"]] = "curves"

    def __init__(self, **parameters: Any) -> None:
        """It has no parameters."""
        super().__init__(**parameters)
        self._alone = GridPredictor()

    def predict(self, question: Question) -> Prediction:
        """Combines what others and the curve itself say."""
        curve = read(question.curve)
        alone = self._alone.predict(question)
        others, earlier = runs(question.others), runs(question.earlier)
        if not alone.positions or not (others or earlier):
            return alone
        usual = _usual([run.reports.values for run in others or earlier])
        scale = Scale.of(question, np.concatenate((curve.reports.values, usual)))
        future = _knots(alone.positions)
        own = align(scale, curve, others, future)
        foreseen = None if own is None else foresee(own)
        without = alone if own is None or foreseen is None else _combined(question, scale, own, foreseen, alone)
        count = 0 if own is None else len(own.before)
        every = align(scale, curve, [*others, *earlier], future) if earlier else None
        if every is None or len(every.before) == count:
            return without
        judged = None if foreseen is None else foreseen.judgement
        told = foresee(every, None if judged is None else (count, judged.position))
        faith = FAITH if judged is None or told.judgement is None else _faith(judged, told.judgement)
        return _mixture(without, _combined(question, scale, every, told, alone), faith)


def _usual(values: list[Floats]) -> Floats:
    """What runs report, less what is so far from the rest that it would leave no room for that: some have diverged."""
    together = np.concatenate(values)
    low, middle, high = np.quantile(together, (0.25, 0.5, 0.75))
    kept = np.abs(together - middle) <= _USUAL * (high - low)
    return np.asarray(together[kept] if high > low else together)


def _knots(positions: tuple[int, ...]) -> Floats:
    """Some of many future positions, from the last one backwards."""
    return np.array(positions[:: -max(1, -(-len(positions) // KNOTS))][::-1], dtype=np.float64)


def _faith(without: Judgement, within: Judgement) -> float:
    """How much what earlier runs say too counts, by how well the own runs would have been predicted without and with that."""
    least = max(min(without.error, within.error), LEAST)
    evidence = DECISIVENESS * without.runs * (without.error - within.error) / least
    odds = FAITH / (1 - FAITH) * exp(min(max(evidence, -_CLEAR), _CLEAR))
    return odds / (1 + odds)


def _mixture(one: Prediction, other: Prediction, weight: float) -> Prediction:
    """Either prediction comes true; `weight` is the chance of the other one."""
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
    """Quantiles at `LEVELS` of a mixture of two distributions, given as such quantiles; `weight` is the second one's."""
    points = np.concatenate((first, second))
    weights = np.repeat((1 - weight, weight), first.size) / first.size
    order = np.argsort(points, kind="stable")
    points, weights = points[order], weights[order]
    return np.asarray(np.interp(_LEVELS, np.cumsum(weights) - weights / 2, points))
