"""Aligns other runs of an experiment to the positions of one curve."""

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
    """A curve and the runs that trained further; all values in units, larger is better.

    Attributes:
        at: The curve's positions, ascending.
        values: The curve's reports there.
        ahead: Future positions, ascending, each reached by at least one run.
        before: The runs' values at `at`, one row for each run.
        after: The runs' values at `ahead`; 0 where a run did not reach the position.
        reached: Whether a run reached the position.
        configurations: The hyperparameters of the runs, and of the curve at the end.
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
        """Standard deviation of the noise of a report around the present position, in units; > 0."""
        width = self.at.size
        whole = np.column_stack((self.before, self.after))
        reached = np.column_stack((np.ones_like(self.before, dtype=bool), self.reached))
        window = slice(max(0, width // 2 - 1), max(2 * width, width + 3))
        return _noise(whole[:, window], reached[:, window])

    @property
    def late_noise(self) -> float:
        """Standard deviation of the noise of a report over the later half of the future positions, in units; > 0."""
        late = slice(min(self.ahead.size // 2, max(0, self.ahead.size - 3)), None)
        return _noise(self.after[:, late], self.reached[:, late])


@dataclass(frozen=True, slots=True)
class AlignedRun:
    """The finite reports of a run.

    Attributes:
        reports: The reports.
        end: The last position for which the run counts. A finished run counts up to its next report, exclusively, so
            that the last positions of runs need not be equal.
        configuration: Its hyperparameters.
    """

    reports: FiniteReports
    end: float
    configuration: Mapping[str, Any]


def read(curve: Curve) -> AlignedRun:
    """Return a curve as a run.

    Raises:
        NotPredictableError: It has no finite report.
    """
    reports = finite(curve)
    end = float(reports.positions[-1])
    if curve.ended and len(curve.positions) > 1:
        end += (curve.positions[-1] - curve.positions[0]) // (len(curve.positions) - 1) - 1
    return AlignedRun(reports, end, curve.hyperparameters)


def runs(curves: Iterable[Curve]) -> list[AlignedRun]:
    """Return the curves with a finite report as runs."""
    found = []
    for curve in curves:
        with suppress(NotPredictableError):
            found.append(read(curve))
    return found


def align(scale: Scale, curve: AlignedRun, others: Sequence[AlignedRun], future: Floats) -> Aligned | None:
    """Align the runs that started before the curve's last report and trained beyond it.

    Values between reports are interpolated; the first report of a run also stands for earlier positions.

    Args:
        scale: The scale of the metric.
        curve: The curve.
        others: The other runs.
        future: Positions after the curve's last one, ascending, at least one.

    Returns:
        None if there is no such run.
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
