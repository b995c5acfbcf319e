"""The predictor `grid`: a grid over curve shapes and noise levels, with linear parameters integrated exactly."""

from hopyard_curves.grid.mixture import Mixture
from hopyard_curves.grid.posterior import extrapolate
from hopyard_curves.grid.predictor import GridPredictor

__all__ = ["GridPredictor", "Mixture", "extrapolate"]
