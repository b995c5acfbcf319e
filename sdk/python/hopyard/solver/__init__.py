"""Solvers: plugins that compute for a policy what takes too long for an up-call. This package has their base class."""

from hopyard.solver.base import Solver

__all__ = ["Solver"]
