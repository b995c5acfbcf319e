"""What a curve's reports say, and where the next ones will be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hopyard.predictor import Curve, NotPredictableError

Floats = NDArray[np.float64]

DIVERGED: Final = 1e100
"""A value beyond this, either way, is as good as infinite."""
MOST: Final = 1000
"""At most about so many future positions are looked at; where a job would report more often, some are left out."""


@dataclass(frozen=True, slots=True)
class FiniteReports:
    """A curve's finite reports.

    Attributes:
        positions: Where they are, rising.
        values: What they say; all finite.
    """

    positions: Floats
    values: Floats


def finite(curve: Curve) -> FiniteReports:
    """A curve without its reports that are not finite, or beyond `DIVERGED`.

    Raises:
        NotPredictableError: Nothing is left.
    """
    positions = np.asarray(curve.positions, dtype=np.float64)
    values = np.asarray(curve.values, dtype=np.float64)
    kept = np.abs(values) <= DIVERGED
    if not kept.any():
        found = f"{values.size} reports, none of them finite" if values.size else "no report"
        raise NotPredictableError(f"the curve has {found}; a prediction needs at least one finite value")
    return FiniteReports(positions[kept], values[kept])


def spacing(curve: Curve) -> int:
    """How far apart a curve's reports are: the median distance, or its first position while there is one report."""
    if len(curve.positions) < 2:
        return max(1, curve.positions[0])
    return max(1, int(np.median(np.diff(curve.positions))))


def future(curve: Curve, horizon: int) -> tuple[int, ...]:
    """Where a curve will be reported: at its spacing from its last position on, and at the horizon; () behind that."""
    last = curve.positions[-1]
    if last >= horizon:
        return ()
    step = spacing(curve)
    step *= max(1, -(-(horizon - last) // (step * MOST)))
    return (*range(last + step, horizon, step), horizon)


def abscissae(curve: Curve, positions: NDArray[np.float64]) -> Floats:
    """Positions of a curve counted in its reports, so that a curve with regular ones has 1, 2, 3, ..; 1 for its first."""
    step, first = spacing(curve), curve.positions[0]
    return np.asarray((positions - first) / step + max(1.0, first / step))
