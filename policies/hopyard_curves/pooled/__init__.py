"""The predictor `pooled`: what this experiment's other curves say about one of them."""

from hopyard_curves.pooled.predictor import PooledPredictor

__all__ = ["PooledPredictor"]
