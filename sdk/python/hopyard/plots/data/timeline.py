"""Data of plots of one search over time: `gantt` (runs on slots), `pools` (HyperDrive, figure 4c) and `jobs_at_R` (completed jobs)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hopyard.errors import NotFound
from hopyard.plots.data.groups import labels, natural, need, one
from hopyard.plots.model import JobEnd, PlottedRun, Search


@dataclass(frozen=True, slots=True)
class Gantt:
    """Data of the plot `gantt`: which run was on which slot, and when.

    Attributes:
        slots: Ids of the slots in natural order (`natural`).
        runs: The runs, ordered by start. A run whose `end` is None has not ended.
        time: Right end of the x axis, in seconds since the search began.
        part: Ids of the jobs that have a learning curve and are not completed: the end of their last run is not the end of training.
    """

    slots: tuple[str, ...]
    runs: tuple[PlottedRun, ...]
    time: float
    part: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pools:
    """Data of the plot `pools`: the size of the pools of promising and opportunistic jobs over time.

    A job is promising while the priority that the policy gave to it is above 0, else opportunistic (HyperDrive, section 3). The size
    of a pool is the number of slots that its jobs hold.

    Attributes:
        points: Tuples (seconds since the search began, size of the promising pool, size of the opportunistic pool), ordered by time.
            Sizes are valid until the next tuple.
        time: Right end of the x axis, in seconds since the search began.
    """

    points: tuple[tuple[float, float, float], ...]
    time: float


@dataclass(frozen=True, slots=True)
class Steps:
    """The number of completed jobs of one search over time.

    Attributes:
        label: The label of the search: its policy, and its predictor or source if other searches of the plot have different ones.
        points: Pairs (seconds since the search began, number of jobs that completed until then), ordered by time.
        time: Duration of the search in seconds.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    time: float


@dataclass(frozen=True, slots=True)
class CompletedJobs:
    """Data of the plot `jobs_at_R`: the number of completed jobs of each search over time.

    Attributes:
        position: R, the position at which a job is complete; None: the searches have different ones.
        unit: What one position is, such as an epoch.
        searches: One curve per search.
    """

    position: int | None
    unit: str
    searches: tuple[Steps, ...]


def gantt(searches: Sequence[Search]) -> Gantt:
    """Return the data of the plot `gantt` for one search: which run was on which slot, and when.

    Args:
        searches: Exactly one search.

    Raises:
        InvalidInput: There are several searches, or the source of the search does not provide runs (`Search.runs` is None).
        NotFound: The source provides runs, but none has started yet.
    """
    search = one(searches, "gantt")
    runs: tuple[PlottedRun, ...] = need(search, "runs", "gantt", "runs")
    if not runs:
        raise NotFound(f"{search.where}: nothing has run yet")
    last = max(run.end if run.end is not None else run.start for run in runs)
    going_on = any(run.end is None for run in runs)
    time = max(last, search.time or 0.0) if going_on else last
    slots = sorted({run.slot for run in runs}, key=natural)
    ordered = tuple(sorted(runs, key=lambda run: (run.start, natural(run.slot), run.attempt)))
    part = tuple(curve.job for curve in search.curves or () if curve.end is not JobEnd.COMPLETED)
    return Gantt(tuple(slots), ordered, time, part)


def pools(searches: Sequence[Search]) -> Pools:
    """Return the data of the plot `pools` for one search: how many slots promising and opportunistic jobs held, over time.

    A job is promising while the priority that the policy gave to it is above 0, else opportunistic (HyperDrive, section 3).

    Args:
        searches: Exactly one search.

    Raises:
        InvalidInput: There are several searches, or the source of the search does not provide pools (`Search.pools` is None).
        NotFound: The source provides pools, but the policy of the search has none, or no job was ever promising.
    """
    search = one(searches, "pools")
    points: tuple[tuple[float, float, float], ...] = need(search, "pools", "pools", '"pools"')
    if not points:
        raise NotFound(f"{search.where}: its policy divides its slots into no pools; pop does")
    if not search.labels and not any(promising for _, promising, _ in points):
        raise NotFound(
            f"{search.where}: no job was ever promising, so there are no two pools; pop and its like make them"
        )
    return Pools(points, max(search.time or 0.0, points[-1][0]))


def at_full(searches: Sequence[Search]) -> CompletedJobs:
    """Return the data of the plot `jobs_at_R`: the number of completed jobs of each search over time.

    Raises:
        InvalidInput: The source of a search does not provide these numbers (`Search.completed_jobs` is None).
    """
    found = []
    for label, search in zip(labels(searches), searches, strict=True):
        points: tuple[tuple[float, float], ...] = need(search, "completed_jobs", "jobs_at_R", '"jobs_at_R"')
        found.append(Steps(label, points, max([search.time or 0.0, *(at for at, _ in points)])))
    positions = {search.max_position for search in searches}
    units = {search.unit for search in searches if search.unit is not None}
    return CompletedJobs(
        positions.pop() if len(positions) == 1 else None, units.pop() if len(units) == 1 else "positions", tuple(found)
    )
