"""Files that can be plotted: results of simulations."""

from __future__ import annotations

from hopyard.plots.results import read_results as read

__all__ = ["read"]
