"""The predictor plugin `grid`: extrapolates one curve with the model of `grid.posterior`."""

from __future__ import annotations

from math import inf, isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopyard.predictor import LEVELS, Prediction, Predictor, Question
from hopyard_curves.grid.mixture import Mixture
from hopyard_curves.grid.posterior import extrapolate
from hopyard_curves.metric_normalization import Scale
from hopyard_curves.reports import abscissae, finite, future

Floats = NDArray[np.float64]

_FAR: Final = 2.0


class GridPredictor(Predictor):
    """Extrapolates one curve in milliseconds, without random numbers: a closed-form posterior over curve shapes.

    `hopyard_curves.grid.posterior` describes the model. Its constants were chosen on real accuracy curves and are the
    same for all curves.
    """

    def predict(self, question: Question) -> Prediction:
        """Extrapolate the question's curve from its own reports. The seed and other curves have no effect.

        Raises:
            NotPredictableError: The curve has no finite value.
        """
        reports = finite(question.curve)
        positions = future(question.curve, question.horizon)
        if not positions:
            return Prediction((), (), ())
        scale = Scale.of(question, reports.values)
        mixture = extrapolate(
            abscissae(question.curve, reports.positions),
            scale.observed(reports.values),
            abscissae(question.curve, np.asarray(positions, dtype=np.float64)),
            limit=_limit(scale),
        )
        mean, deviation = _moments(scale, mixture)
        reaches: tuple[float, ...] = ()
        if question.target is not None:
            chances = mixture.exceeds(float(scale.to_unit(question.target)))
            reaches = tuple(np.clip(scale.possible(question.target, chances), 0.0, 1.0).tolist())
        final = scale.clipped(scale.from_unit(mixture.quantiles(LEVELS)))
        return Prediction(
            positions,
            tuple(scale.clipped(mean).tolist()),
            tuple(deviation.tolist()),
            reaches,
            tuple(np.sort(final).tolist()),
        )


def _moments(scale: Scale, mixture: Mixture) -> tuple[Floats, Floats]:
    """Convert the mean and standard deviation of a mixture from normalized values to metric values, at each position.

    On a logarithmic scale, few huge values can dominate the mean. There the mean is clipped to the range of two
    standard deviations around the normalized mean, and the deviation to the width of that range.
    """
    middle, spread = mixture.mean(), mixture.deviation()
    mean, deviation = scale.moments(middle, spread)
    if scale.logarithmic:
        one, other = scale.from_unit(middle - _FAR * spread), scale.from_unit(middle + _FAR * spread)
        mean = np.clip(mean, np.minimum(one, other), np.maximum(one, other))
        deviation = np.minimum(deviation, np.abs(other - one))
    return mean, deviation


def _limit(scale: Scale) -> float:
    """Return the upper limit of the curve's expected normalized value.

    It is 1 if the best possible value of the metric is given, or if the scale assumes a natural one (1 for accuracies, 0 for
    losses). Otherwise it is infinite.
    """
    known = isfinite(scale.high if scale.rising else scale.low)
    natural = not scale.logarithmic and (scale.best == 0 or (scale.worst, scale.best) == (0, 1))
    return 1.0 if known or natural else inf
