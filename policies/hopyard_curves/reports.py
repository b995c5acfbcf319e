"""The finite reports of a curve and its future positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopyard.predictor import Curve, NotPredictableError

Floats = NDArray[np.float64]

DIVERGED: Final = 1e100
"""Values with a larger magnitude count as infinite."""
MOST: Final = 1000
"""Approximate maximum number of future positions; if a job reports more often, some are skipped."""


@dataclass(frozen=True, slots=True)
class FiniteReports:
    """The finite reports of a curve.

    Attributes:
        positions: Their positions, ascending.
        values: Their values, all finite.
    """

    positions: Floats
    values: Floats


def finite(curve: Curve) -> FiniteReports:
    """Return a curve without reports that are not finite or exceed `DIVERGED`.

    Raises:
        NotPredictableError: No report is left.
    """
    positions = np.asarray(curve.positions, dtype=np.float64)
    values = np.asarray(curve.values, dtype=np.float64)
    kept = np.abs(values) <= DIVERGED
    if not kept.any():
        found = f"{values.size} reports, none of them finite" if values.size else "no report"
        raise NotPredictableError(f"the curve has {found}; a prediction needs at least one finite value")
    return FiniteReports(positions[kept], values[kept])


def spacing(curve: Curve) -> int:
    """Return the distance between reports: the median distance, or the first position if there is one report."""
    if len(curve.positions) < 2:
        return max(1, curve.positions[0])
    return max(1, int(np.median(np.diff(curve.positions))))


def future(curve: Curve, horizon: int) -> tuple[int, ...]:
    """Return the future positions of a curve: at its spacing after its last position, and the horizon; () beyond the horizon."""
    last = curve.positions[-1]
    if last >= horizon:
        return ()
    step = spacing(curve)
    step *= max(1, -(-(horizon - last) // (step * MOST)))
    return (*range(last + step, horizon, step), horizon)


def abscissae(curve: Curve, positions: NDArray[np.float64]) -> Floats:
    """Convert positions to a count of the curve's reports: 1, 2, 3, ... for regular reports."""
    step, first = spacing(curve), curve.positions[0]
    return np.asarray((positions - first) / step + max(1.0, first / step))
