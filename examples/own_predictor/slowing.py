"""Learning slows down: each doubling of the training gains a fraction of what the previous doubling gained."""

import math
from itertools import pairwise
from statistics import median, stdev
from typing import Any

from hopyard.predictor import NotPredictableError, Prediction, Predictor, PredictorParameterError, Question
from hopyard.predictor.normal import normal


class SlowingDown(Predictor):
    """Each doubling of the training gains `fade` times what the previous doubling gained.

    Args:
        fade: Above 0 and below 1.
        doubt: The standard deviation of an expected gain, as a fraction of it, >= 0.
    """

    def __init__(self, fade: float = 0.6, doubt: float = 0.5, **rest: Any) -> None:
        super().__init__(**rest)
        if not 0 < fade < 1 or doubt < 0:
            raise PredictorParameterError(f"needs 0 < fade < 1 and doubt >= 0, found fade {fade} and doubt {doubt}")
        self.fade, self.doubt = fade, doubt

    def predict(self, question: Question) -> Prediction:
        positions, last = question.curve.positions, max(question.curve.positions, default=0)
        finite = [point for point in zip(positions, question.curve.values, strict=True) if math.isfinite(point[1])]
        if not finite:
            raise NotPredictableError(f"none of the {len(positions)} reports is finite; a prediction needs one")
        step = int(median(b - a for a, b in pairwise((0, *positions))))
        future = (*range(last + step, question.horizon, step), question.horizon) if last < question.horizon else ()

        values = [value for _, value in finite]
        level = median(values[-3:])
        early = [value for position, value in finite if position <= last / 2]
        gained = level - median(early[-3:]) if early else 0.0
        size = max(values) - min(values) or abs(level) or 1.0
        if question.low is not None and question.high is not None:
            size = question.high - question.low
        steps = [b - a for a, b in pairwise(values)][-10:]
        noise = (stdev(steps) / math.sqrt(2) if len(steps) > 2 else 0.0) + size / 500

        doublings = [math.log2(position / last) for position in future]
        gains = [gained * self.fade * (1 - self.fade**ahead) / (1 - self.fade) for ahead in doublings]
        doubts = [
            self.doubt * abs(gain) + ahead * size / (5 + len(values))
            for gain, ahead in zip(gains, doublings, strict=True)
        ]
        return normal(question, future, [level + gain for gain in gains], doubts, noise)
