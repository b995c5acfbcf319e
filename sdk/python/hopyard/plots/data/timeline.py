"""A search over time: what ran where, what the pools had (HyperDrive, figure 4c), how many jobs were trained to the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hopyard.errors import NotFound
from hopyard.plots.data.groups import labels, natural, need, one
from hopyard.plots.model import JobEnd, PlottedRun, Search


@dataclass(frozen=True, slots=True)
class Gantt:
    """What ran where.

    Attributes:
        slots: In the order of their names, with numbers in them counted.
        runs: In order of their start; those without an end go on.
        time: Where the plot ends.
        part: Jobs that are known not to have been trained to their end.
    """

    slots: tuple[str, ...]
    runs: tuple[PlottedRun, ...]
    time: float
    part: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pools:
    """(seconds, promising, opportunistic): what each pool had from then on, in rising order, up to `time`."""

    points: tuple[tuple[float, float, float], ...]
    time: float


@dataclass(frozen=True, slots=True)
class Steps:
    """(seconds, jobs trained to the end by then) of one search, up to `time`."""

    label: str
    points: tuple[tuple[float, float], ...]
    time: float


@dataclass(frozen=True, slots=True)
class AtFull:
    """Jobs trained to the end over time, a line a search; `position` is where the end is."""

    position: int | None
    unit: str
    searches: tuple[Steps, ...]


def gantt(searches: Sequence[Search]) -> Gantt:
    """What ran where, of one search.

    Raises:
        InvalidInput: There are several searches, or it does not tell its runs.
        NotFound: Nothing has run yet.
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
    """What the pools had, of one search.

    Raises:
        InvalidInput: There are several searches, or it does not tell its pools.
        NotFound: Its policy made none.
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


def at_full(searches: Sequence[Search]) -> AtFull:
    """Jobs trained to the end over time, of each search.

    Raises:
        InvalidInput: A search does not tell them.
    """
    found = []
    for label, search in zip(labels(searches), searches, strict=True):
        points: tuple[tuple[float, float], ...] = need(search, "jobs_at_full", "jobs_at_R", '"jobs_at_R"')
        found.append(Steps(label, points, max([search.time or 0.0, *(at for at, _ in points)])))
    positions = {search.max_position for search in searches}
    units = {search.unit for search in searches if search.unit is not None}
    return AtFull(
        positions.pop() if len(positions) == 1 else None, units.pop() if len(units) == 1 else "positions", tuple(found)
    )
