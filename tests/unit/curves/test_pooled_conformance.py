"""`pooled` keeps what predictors promise."""

from __future__ import annotations

from typing import ClassVar

from hopyard.predictor import Predictor
from hopyard.predictor.conformance import PredictorConformance
from hopyard_curves.pooled import PooledPredictor


class TestPooled(PredictorConformance):
    time_limit: ClassVar[float] = 0.2

    def make(self) -> Predictor:
        return PooledPredictor()
