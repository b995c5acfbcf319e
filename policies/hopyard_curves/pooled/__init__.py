"""The predictor `pooled`: predicts a curve from other curves of the experiment and of earlier experiments."""

from hopyard_curves.pooled.predictor import PooledPredictor

__all__ = ["PooledPredictor"]
