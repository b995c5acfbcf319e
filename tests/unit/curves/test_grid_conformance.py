from __future__ import annotations

from hopyard.predictor import Predictor
from hopyard.predictor.conformance import PredictorConformance
from hopyard_curves.grid import GridPredictor


class TestGrid(PredictorConformance):
    # Ten times what it takes on an idle machine.
    time_limit = 0.05

    def make(self) -> Predictor:
        return GridPredictor()
