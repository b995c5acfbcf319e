"""How long jobs train: the distribution of their durations under each policy (HyperDrive, figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hopyard.errors import NotFound
from hopyard.plots.data.curves import Over
from hopyard.plots.data.groups import grouped, labels, need
from hopyard.plots.model import Floats, JobCurve, JobEnd, PlottedRun, Search, SearchSource


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Durations of jobs under one policy.

    Attributes:
        label: The policy.
        durations: Seconds or positions of each job that has trained, in rising order.
        going_on: How many of these may train on.
    """

    label: str
    durations: Floats
    going_on: int


@dataclass(frozen=True, slots=True, eq=False)
class Durations:
    """Distributions of jobs' durations, one a policy, over `over` (positions in `unit`)."""

    over: Over
    unit: str
    policies: tuple[Distribution, ...]


def gather(searches: Sequence[Search], over: Over = Over.TIME) -> Durations:
    """The durations of all jobs; searches with one label are taken together.

    Raises:
        InvalidInput: A search tells no durations.
        NotFound: No job has trained yet.
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


def _durations(search: Search, over: Over) -> Floats:
    if over is Over.POSITION:
        curves: tuple[JobCurve, ...] = need(search, "curves", "durations", "curves")
        return np.array([curve.positions[-1] for curve in curves if len(curve.positions)], float)
    if search.durations is not None:
        return np.array([seconds for seconds in search.durations.values() if seconds > 0], float)
    runs: tuple[PlottedRun, ...] = need(search, "runs", "durations", "runs")
    # A run on several slots is one attempt, and counts once.
    attempts: dict[tuple[str, int], float] = {}
    for run in runs:
        end = run.end if run.end is not None else search.time
        if end is not None:
            attempts[run.job, run.attempt] = end - run.start
    jobs: dict[str, float] = {}
    for (job, _), seconds in attempts.items():
        jobs[job] = jobs.get(job, 0.0) + seconds
    return np.array([seconds for seconds in jobs.values() if seconds > 0], float)
