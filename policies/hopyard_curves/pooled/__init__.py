"""The predictor `pooled`: predicts a curve from the experiment's other curves."""

from hopyard_curves.pooled.predictor import PooledPredictor

__all__ = ["PooledPredictor"]
