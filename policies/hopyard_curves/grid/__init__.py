"""The predictor `grid`: a closed-form posterior over a grid of curve shapes and noise levels (see `grid.posterior`)."""

from hopyard_curves.grid.mixture import Mixture
from hopyard_curves.grid.posterior import extrapolate
from hopyard_curves.grid.predictor import GridPredictor

__all__ = ["GridPredictor", "Mixture", "extrapolate"]
