"""Data of the plot `curves`: each job's metric over positions or time, and which job reached the best value."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hopyard.errors import NotFound
from hopyard.plots.data.groups import need, one
from hopyard.plots.model import Floats, JobCurve, Search, SearchSource


class ProgressAxis(enum.Enum):
    """The quantity on the x axis of a learning curve: the job's position, or time in seconds.

    The time counts from the start of the search; in plots of traces, it is the training time of the job.
    """

    POSITION = "position"
    TIME = "time"


@dataclass(frozen=True, slots=True, eq=False)
class CurvePlot:
    """Data of the plot `curves`: the learning curves of one search.

    Attributes:
        metric: Name of the metric on the y axis.
        unit: What one position is, such as an iteration or an epoch.
        over: The quantity on the x axis.
        own_time: True: the curves' times are seconds of the job's own training. False: seconds since the search began.
        curves: One curve per job, in the order in which the jobs were created. Metric values that were not finite are NaN and drawn as
            gaps.
        best: Id of the job that reached the best value of all curves. If it is unknown whether high or low values are better, the best
            value is `Search.best`; None: this is also unknown, or no curve contains it.
        best_value: The best value; None if `best` is None.
        target: The metric value at which the search ends; None: no target.
        low: Lower limit of the y axis. Outliers lie outside the limits.
        high: Upper limit of the y axis.
        beyond: Number of curves with a value outside the limits of the y axis.
        promising: For each curve, an array with one number per point: 1 if the policy had classified the job as promising before it
            trained to that point, else 0 (HyperDrive, section 3). None: the policy does not classify its jobs.
    """

    metric: str
    unit: str
    over: ProgressAxis
    own_time: bool
    curves: tuple[JobCurve, ...]
    best: str | None
    best_value: float | None
    target: float | None
    low: float
    high: float
    beyond: int
    promising: tuple[Floats, ...] | None = None


def gather(searches: Sequence[Search], over: ProgressAxis = ProgressAxis.POSITION) -> CurvePlot:
    """Return the data of the plot `curves` for one search: the metric of each job over its positions or over time.

    Args:
        searches: Exactly one search.
        over: The quantity on the x axis.

    Raises:
        InvalidInput: There are several searches, or the source of the search does not provide curves (`Search.curves` is None).
        NotFound: The source provides curves, but no job has reported a finite value of the metric yet.
    """
    search = one(searches, "curves")
    curves: tuple[JobCurve, ...] = need(search, "curves", "curves", "curves")
    values = np.concatenate([np.empty(0), *(curve.values for curve in curves)])
    values = values[np.isfinite(values)]
    if not len(values):
        raise NotFound(
            f"{search.where}: no job has reported a finite {search.metric} yet, so there is no curve to draw"
        )
    best_value = _best(search, values)
    reached = [curve.job for curve in curves if best_value is not None and (curve.values == best_value).any()]
    # If several jobs reached the best value, the first one to report it is the best job: only the search records which.
    best = search.best_job if search.best_job in reached else next(iter(reached), None)
    kept = [value for value in (best_value, search.target) if value is not None]
    low, high = _axis(values, kept)
    beyond = sum(1 for curve in curves if ((curve.values < low) | (curve.values > high)).any())
    return CurvePlot(
        metric=search.metric,
        unit=search.unit or "position",
        over=over,
        own_time=search.source is SearchSource.TRACES,
        curves=curves,
        best=best,
        best_value=best_value if best is not None else None,
        target=search.target,
        low=low,
        high=high,
        beyond=beyond,
        promising=_promising(search, curves),
    )


def _promising(search: Search, curves: Sequence[JobCurve]) -> tuple[Floats, ...] | None:
    """Return the attribute `promising` of `CurvePlot`: a job is promising while the latest priority that its policy set is above 0."""
    if not any(label > 0 for given in (search.labels or {}).values() for _, label in given):
        return None
    found = []
    for curve in curves:
        given = np.array([(-np.inf, 0.0), *(search.labels or {}).get(curve.job, ())], float)
        before = np.searchsorted(given[:, 0], curve.times, side="left") - 1
        found.append((given[before, 1] > 0).astype(float))
    return tuple(found)


def _best(search: Search, values: np.ndarray) -> float | None:
    mode: Literal["max", "min"] | None = search.mode
    if mode is None:
        return search.best
    return float(values.max() if mode == "max" else values.min())


def _axis(values: np.ndarray, kept: Sequence[float]) -> tuple[float, float]:
    """Return the lower and the upper limit of the y axis.

    The limits enclose all values except outliers, which would flatten all other curves. An outlier is farther outside the range from
    the 2nd to the 98th percentile (enlarged by `kept`) than 1.5 times the length of this range.

    Args:
        values: The finite values of all curves, at least one.
        kept: Values that are always inside the limits, such as the target.
    """
    inner = np.percentile(values, [2, 98])
    low, high = min(inner[0], *kept, inner[1]), max(inner[1], *kept, inner[0])
    reach = 1.5 * ((high - low) or abs(high) or 1.0)
    low = values.min() if values.min() >= low - reach else low
    high = values.max() if values.max() <= high + reach else high
    low, high = min(low, *kept, high), max(high, *kept, low)
    margin = 0.05 * ((high - low) or abs(high) or 1.0)
    return float(low - margin), float(high + margin)
