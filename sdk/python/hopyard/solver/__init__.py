"""Solvers: what policies ask that takes too long to think about in an up-call. The base class that plugins derive from."""

from hopyard.solver.base import Solver

__all__ = ["Solver"]
