"""The finite reports of a learning curve, and the positions of its future reports."""

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
    """The reports of a curve whose values are finite; see `finite`.

    Attributes:
        positions: The positions of the reports in the experiment's unit, ascending.
        values: The metric at each position, finite.
    """

    positions: Floats
    values: Floats


def finite(curve: Curve) -> FiniteReports:
    """Return the reports of a curve whose values are finite and whose magnitudes are at most `DIVERGED`.

    Raises:
        NotPredictableError: The curve has no such report.
    """
    positions = np.asarray(curve.positions, dtype=np.float64)
    values = np.asarray(curve.values, dtype=np.float64)
    kept = np.abs(values) <= DIVERGED
    if not kept.any():
        found = f"{values.size} reports, none of them finite" if values.size else "no report"
        raise NotPredictableError(f"the curve has {found}; a prediction needs at least one finite value")
    return FiniteReports(positions[kept], values[kept])


def spacing(curve: Curve) -> int:
    """Return the usual distance between reports, in the experiment's unit, at least 1.

    It is the median distance, or the first position if the curve has one report. A curve without reports raises `IndexError`.
    """
    if len(curve.positions) < 2:
        return max(1, curve.positions[0])
    return max(1, int(np.median(np.diff(curve.positions))))


def future(curve: Curve, horizon: int) -> tuple[int, ...]:
    """Return the future positions of a curve for a prediction, ascending; the last one is the horizon.

    They continue the spacing of the curve's reports after its last report. If there would be more than `MOST`, the spacing is
    multiplied by the smallest integer that gives at most `MOST`. The result is empty if the last report is at or after the horizon.
    """
    last = curve.positions[-1]
    if last >= horizon:
        return ()
    step = spacing(curve)
    step *= max(1, -(-(horizon - last) // (step * MOST)))
    return (*range(last + step, horizon, step), horizon)


def abscissae(curve: Curve, positions: NDArray[np.float64]) -> Floats:
    """Convert positions to abscissae: positions as a count of the curve's reports, 1, 2, 3, ... for regularly spaced reports.

    The abscissa is (position - first) / step + max(1, first / step), with the first reported position and the step `spacing(curve)`.

    Args:
        curve: The curve that defines the spacing and the first report.
        positions: Positions in the experiment's unit, of past or future reports.
    """
    step, first = spacing(curve), curve.positions[0]
    return np.asarray((positions - first) / step + max(1.0, first / step))
