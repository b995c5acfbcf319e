"""Learning curves: every job's metric over positions or time, the best one among them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hopyard.errors import NotFound
from hopyard.plots.data.groups import need, one
from hopyard.plots.model import Floats, JobCurve, Search, SearchSource


class Over(enum.Enum):
    """What a job's progress is shown over."""

    POSITION = "position"
    TIME = "time"


@dataclass(frozen=True, slots=True, eq=False)
class CurvePlot:
    """Learning curves.

    Attributes:
        metric: What they show.
        unit: What a position counts.
        over: What they are shown over.
        own_time: Whether times are the job's own training, not those since the search began.
        curves: One a job, in order of creation; values that are not finite are NaN, and gaps.
        best: The job that reached the best value; None: no direction is known, or nothing finite was reported.
        best_value: That value.
        target: What was to be reached; None: no target.
        low: Where the metric's axis begins. What lies beyond is outliers.
        high: Where it ends.
        beyond: How many curves leave the axis.
        promising: For each curve, whether the job was promising (1) while it trained to each point, or opportunistic (0); None: its
            policy does not divide its jobs so.
    """

    metric: str
    unit: str
    over: Over
    own_time: bool
    curves: tuple[JobCurve, ...]
    best: str | None
    best_value: float | None
    target: float | None
    low: float
    high: float
    beyond: int
    promising: tuple[Floats, ...] | None = None


def gather(searches: Sequence[Search], over: Over = Over.POSITION) -> CurvePlot:
    """The curves of one search.

    Raises:
        InvalidInput: There are several searches, or it comes without curves.
        NotFound: No job has reported a finite value yet.
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
    # Of equal values the first reported one is the best; only the search itself knows which that was.
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
    """By its label a job is promising, from the moment on when it got one above 0."""
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
    """Room for what is usual, and for what must be seen; a few values that are far out do not flatten all others."""
    inner = np.percentile(values, [2, 98])
    low, high = min(inner[0], *kept, inner[1]), max(inner[1], *kept, inner[0])
    reach = 1.5 * ((high - low) or abs(high) or 1.0)
    low = values.min() if values.min() >= low - reach else low
    high = values.max() if values.max() <= high + reach else high
    low, high = min(low, *kept, high), max(high, *kept, low)
    margin = 0.05 * ((high - low) or abs(high) or 1.0)
    return float(low - margin), float(high + margin)
