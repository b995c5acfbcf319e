"""Aligns the curves of other jobs to the positions of the curve that is to be predicted.

In this package a *reference curve* is the curve of another job. Values are normalized (0 worst, 1 best; see
`metric_normalization.Scale`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hopyard.predictor import Curve, NotPredictableError
from hopyard_curves.metric_normalization import Scale
from hopyard_curves.reports import FiniteReports, finite

Floats = NDArray[np.float64]

_NORMAL: Final = 1.4826
"""Factor from the median of |x| to the standard deviation of a normal x."""
_SECOND_DIFFERENCE: Final = 6**0.5
"""Factor by which second differences of independent noise are larger."""
_LEAST_NOISE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Aligned:
    """A curve to predict, and the reference curves (curves of other jobs) that reach further, at common positions.

    All values are normalized (0 worst, 1 best; see `Scale`).

    Attributes:
        at: The curve's positions, ascending.
        values: The curve's reports at these positions.
        ahead: Future positions, ascending, each reached by at least one reference curve.
        before: The reference curves' values at `at`, one row for each curve.
        after: The reference curves' values at `ahead`, one row for each curve; 0 where a curve did not reach the position.
        reached: Whether the reference curve of a row reached the position of a column; the shape of `after`.
        configurations: The hyperparameters of each reference curve, in the order of rows; the last element is that of the curve to
            predict.
    """

    at: Floats
    values: Floats
    ahead: Floats
    before: Floats
    after: Floats
    reached: NDArray[np.bool_]
    configurations: tuple[Mapping[str, Any], ...]

    @property
    def early_noise(self) -> float:
        """Standard deviation of the noise of the other jobs' reports around the curve's last position, normalized; > 0."""
        width = self.at.size
        whole = np.column_stack((self.before, self.after))
        reached = np.column_stack((np.ones_like(self.before, dtype=bool), self.reached))
        window = slice(max(0, width // 2 - 1), max(2 * width, width + 3))
        return _noise(whole[:, window], reached[:, window])

    @property
    def late_noise(self) -> float:
        """Standard deviation of the noise of the other jobs' reports over the later half of the positions `ahead`, normalized; > 0."""
        late = slice(min(self.ahead.size // 2, max(0, self.ahead.size - 3)), None)
        return _noise(self.after[:, late], self.reached[:, late])


@dataclass(frozen=True, slots=True)
class AlignedRun:
    """The finite reports of one job, and how far they extend.

    Attributes:
        reports: The finite reports.
        end: The last position for which the job has data: its last report. If the job has ended, `end` is one less than
            the position of its next report would be, so that jobs that end at slightly different positions are
            comparable.
        configuration: The job's hyperparameters.
    """

    reports: FiniteReports
    end: float
    configuration: Mapping[str, Any]


def read(curve: Curve) -> AlignedRun:
    """Return the finite reports of a curve and how far they extend.

    Raises:
        NotPredictableError: The curve has no finite report.
    """
    reports = finite(curve)
    end = float(reports.positions[-1])
    if curve.ended and len(curve.positions) > 1:
        end += (curve.positions[-1] - curve.positions[0]) // (len(curve.positions) - 1) - 1
    return AlignedRun(reports, end, curve.hyperparameters)


def runs(curves: Iterable[Curve]) -> list[AlignedRun]:
    """Return `read(curve)` for each of `curves` that has a finite report."""
    found = []
    for curve in curves:
        with suppress(NotPredictableError):
            found.append(read(curve))
    return found


def align(scale: Scale, curve: AlignedRun, others: Sequence[AlignedRun], future: Floats) -> Aligned | None:
    """Align reference curves (curves of other jobs) to the positions of a curve.

    Those are used whose first report is not after the curve's last report and which reach the first future position. Values
    between reports are interpolated; before its first report, a reference curve has the value of its first report.

    Args:
        scale: The scale of the metric.
        curve: The curve to predict.
        others: The curves of other jobs.
        future: Positions after the curve's last one, ascending, at least one.

    Returns:
        The curve with these reference curves; None: there are none.
    """
    positions = np.concatenate((curve.reports.positions, future))
    now = curve.reports.positions[-1]
    kept = [run for run in others if run.reports.positions[0] <= now and run.end >= future[0]]
    if not kept:
        return None
    width = curve.reports.positions.size
    units = scale.observed(np.stack([np.interp(positions, run.reports.positions, run.reports.values) for run in kept]))
    reached = future <= np.array([run.end for run in kept])[:, None]
    known = reached.any(axis=0)
    return Aligned(
        at=curve.reports.positions,
        values=scale.observed(curve.reports.values),
        ahead=future[known],
        before=units[:, :width],
        after=np.where(reached, units[:, width:], 0.0)[:, known],
        reached=reached[:, known],
        configurations=(*(run.configuration for run in kept), curve.configuration),
    )


def _noise(values: Floats, reached: NDArray[np.bool_]) -> float:
    if values.shape[1] < 3:
        return _LEAST_NOISE
    bends = np.abs(np.diff(values, 2, axis=1))[reached[:, 2:]] / _SECOND_DIFFERENCE
    return max(_LEAST_NOISE, _NORMAL * float(np.median(bends))) if bends.size else _LEAST_NOISE
