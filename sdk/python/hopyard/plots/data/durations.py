"""Data of the plot `durations`: how long jobs train, as a distribution for each policy (HyperDrive, figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hopyard.errors import NotFound
from hopyard.plots.data.curves import ProgressAxis
from hopyard.plots.data.groups import grouped, labels, need
from hopyard.plots.model import Floats, JobCurve, JobEnd, PlottedRun, Search, SearchSource


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Training durations of the jobs of all searches with one label.

    Attributes:
        label: The searches' policy, and their predictor or source if other searches of the plot have different ones.
        durations: One number per job that has trained, ascending: its training time in seconds or, if `Durations.over` is POSITION, its
            last position.
        going_on: Number of these jobs that have not ended, so that their duration may still grow; 0 for traces.
    """

    label: str
    durations: Floats
    going_on: int


@dataclass(frozen=True, slots=True, eq=False)
class Durations:
    """Data of the plot `durations`.

    Attributes:
        over: Whether durations are seconds (TIME) or positions (POSITION).
        unit: What one position is, such as an epoch.
        policies: One distribution per label.
    """

    over: ProgressAxis
    unit: str
    policies: tuple[Distribution, ...]


def gather(searches: Sequence[Search], over: ProgressAxis = ProgressAxis.TIME) -> Durations:
    """Return the data of the plot `durations`: how long the jobs have trained, as one distribution for each label (see `labels`).

    Args:
        searches: At least one search.
        over: Whether to measure durations in seconds (TIME) or positions (POSITION).

    Raises:
        InvalidInput: The source of a search provides no durations: for POSITION, `Search.curves` is None; for TIME, both
            `Search.durations` and `Search.runs` are None.
        NotFound: All sources provide durations, but no job has trained yet.
    """
    policies = []
    for label, group in grouped(labels(searches), searches).items():
        found = np.concatenate([_durations(search, over) for search in group])
        if len(found):
            live = [search for search in group if search.source is not SearchSource.TRACES]
            going_on = sum(curve.end is JobEnd.OPEN for search in live for curve in search.curves or ())
            policies.append(Distribution(label, np.sort(found), going_on))
    if not policies:
        raise NotFound(f"{searches[0].where}: no job has trained yet, so there is no duration to show")
    units = {search.unit for search in searches if search.unit is not None}
    return Durations(over, units.pop() if len(units) == 1 else "position", tuple(policies))


def _durations(search: Search, over: ProgressAxis) -> Floats:
    if over is ProgressAxis.POSITION:
        curves: tuple[JobCurve, ...] = need(search, "curves", "durations", "curves")
        return np.array([curve.positions[-1] for curve in curves if len(curve.positions)], float)
    if search.durations is not None:
        return np.array([seconds for seconds in search.durations.values() if seconds > 0], float)
    runs: tuple[PlottedRun, ...] = need(search, "runs", "durations", "runs")
    # A run on several slots has one entry per slot in `runs`; count its time once.
    attempts: dict[tuple[str, int], float] = {}
    for run in runs:
        end = run.end if run.end is not None else search.time
        if end is not None:
            attempts[run.job, run.attempt] = end - run.start
    jobs: dict[str, float] = {}
    for (job, _), seconds in attempts.items():
        jobs[job] = jobs.get(job, 0.0) + seconds
    return np.array([seconds for seconds in jobs.values() if seconds > 0], float)
