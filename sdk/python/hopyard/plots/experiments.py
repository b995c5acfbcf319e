"""An experiment of a cluster as something to plot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hopyard._common.plugins import TIMELINES, load_plugin, plugin_names
from hopyard.client.types import Experiment, Job, JobState, Metric, Statistic
from hopyard.client.wire import converters
from hopyard.errors import Unsupported
from hopyard.plots.model import JobCurve, JobEnd, JournalStory, PlottedVisit, Search, SearchSource

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient

Timeline: TypeAlias = Callable[["AsyncClient", Experiment, bool], Awaitable[JournalStory]]
"""What the entry-point group `hopyard.timelines` holds: what an experiment's journal tells. True: what its policy thought, too."""

JOURNAL: Final = ("gantt", "gangs", "pools", "slots", "hops")
"""Kinds of plots of an experiment that its journal is read for."""

_ENDS: Final = {
    JobState.COMPLETED: JobEnd.COMPLETED,
    JobState.TERMINATED: JobEnd.TERMINATED,
    JobState.FAILED: JobEnd.FAILED,
}


async def read_experiment(client: AsyncClient, experiment: Experiment, kind: str | None = None) -> Search:
    """An experiment as it is now.

    Args:
        client: Of its cluster.
        experiment: Which.
        kind: What is to be shown. For some kinds its whole journal is read.

    Raises:
        Unsupported: The journal is needed, and what reads it is not installed.
    """
    jobs = await client.jobs(experiment)
    # Labels colour curves. Without the scheduler's distribution they are coloured by how the jobs ended.
    labelled = kind in (None, "curves") and any(job.priority for job in jobs) and bool(plugin_names(TIMELINES))
    found = None
    if labelled or kind in JOURNAL:
        found = await timeline(kind or "curves")(client, experiment, kind == "slots")
    now = (await client.cluster()).now
    return search_of(experiment, jobs, await client.statistics(experiment), found, now)


def timeline(kind: str = "gantt") -> Timeline:
    """What reads an experiment's journal for a kind of plot: the scheduler's distribution brings it.

    Raises:
        Unsupported: It is not installed.
    """
    if not plugin_names(TIMELINES):
        raise Unsupported(
            f"--kind {kind} of an experiment needs: pip install 'hopyard[scheduler]', which reads its journal"
        )
    found: Timeline = load_plugin(TIMELINES, "journal")  # type: ignore[assignment]  # what the group is for
    return found


def search_of(
    experiment: Experiment,
    jobs: Iterable[Job],
    statistics: Iterable[Statistic],
    told: JournalStory | None = None,
    now: float | None = None,
) -> Search:
    """An experiment's search, from what a client answers.

    Args:
        experiment: Which.
        jobs: Its jobs in order of creation.
        statistics: All its accepted reports, ordered by job and position.
        told: What its journal tells.
        now: The cluster's clock, where the experiment goes on.
    """
    began, spec, metric = experiment.created_at, experiment.spec, experiment.metric
    told = None if told is None else _since(told, began)
    by_job = {name: list(found) for name, found in groupby(statistics, key=lambda one: one.job)}
    known = list(jobs)
    by_id: dict[str, JobCurve] = {}
    for job in known:
        own = curve_of(job, by_job.get(job.id, []), metric, began)
        by_id[job.id] = _grown(own, by_id.get(job.parent or ""), job.fork_position)
    curves = tuple(by_id.values())
    limit = _at(spec, "stop", "max_iterations")
    ended = experiment.ended_at if experiment.ended_at is not None else now
    return Search(
        where=f"experiment {experiment.id}",
        source=SearchSource.EXPERIMENT,
        policy=_at(spec, "policy", "name"),
        slots=_at(spec, "resources", "slots"),
        metric=metric.name,
        mode=metric.mode,
        unit=_at(spec, "unit"),
        target=metric.target,
        time_to_target=time_to_target(curves, metric),
        best=experiment.best_value,
        best_job=experiment.best_job,
        time=ended - began if ended is not None else None,
        max_position=limit,
        curves=curves,
        durations={job.id: job.seconds for job in known},
        runs=None if told is None else tuple(told.runs),
        pools=None if told is None else tuple(told.pools) if told.labels else (),
        labels=None if told is None else {job: tuple(given) for job, given in told.labels.items()},
        confidences=None if told is None else tuple(told.confidences),
        slots_per_job=_at(spec, "policy", "slots_per_job") or 1,
        visits=None if told is None else tuple(told.visits),
        held=None if told is None else tuple(told.held),
        moved=None if told is None else tuple(told.moved),
        jobs_at_full=None if limit is None else jobs_at_full(curves, limit),
    )


def curve_of(job: Job, statistics: list[Statistic], metric: Metric, began: float) -> JobCurve:
    """A job's curve; parts of one position are combined, and count from their last report on."""
    points = converters.curve(statistics, metric.name)
    at = {one.report.position: one.at for one in statistics}
    attempts = {one.report.position: one.attempt for one in statistics}
    pairs = enumerate(pairwise(points), 1)
    resumed = (index for index, (a, b) in pairs if attempts[a.position] != attempts[b.position])
    times = np.array([max(0.0, at[point.position] - began) for point in points], float)
    values = np.array([point.value for point in points], float)
    values[~np.isfinite(values)] = np.nan
    # A host's clock may have been set back between two runs.
    times = np.maximum.accumulate(times)
    positions = np.array([point.position for point in points], float)
    return JobCurve(job.id, _ENDS.get(job.state, JobEnd.OPEN), times, positions, values, tuple(resumed))


def _grown(curve: JobCurve, parent: JobCurve | None, position: int) -> JobCurve:
    """A forked job's curve, from the point of its parent's where it was forked; as it is, if there is none."""
    if parent is None or not len(curve.positions) or curve.positions[0] <= position:
        return curve
    (place,) = np.flatnonzero(parent.positions == position)[:1].tolist() or [None]
    if place is None or parent.times[place] > curve.times[0]:
        return curve
    first = slice(place, place + 1)
    return replace(
        curve,
        times=np.concatenate([parent.times[first], curve.times]),
        positions=np.concatenate([parent.positions[first], curve.positions]),
        values=np.concatenate([parent.values[first], curve.values]),
        resumed=(1, *(index + 1 for index in curve.resumed)),
    )


def time_to_target(curves: Iterable[JobCurve], metric: Metric) -> float | None:
    """When the first job had reached the target, by a report or the mean of several; None: none has, or there is none."""
    if metric.target is None:
        return None
    reached, over = [], metric.target_over
    for curve in curves:
        if len(curve.values) < over:
            continue
        means = sliding_window_view(curve.values, over).mean(axis=1) if over > 1 else curve.values
        good = means >= metric.target if metric.mode == "max" else means <= metric.target
        if over > 1:
            good |= np.isclose(means, metric.target, rtol=1e-12, atol=0.0)  # Sums are rounded here.
        if good.any():
            reached.append(float(curve.times[good.argmax() + over - 1]))
    return min(reached, default=None)


def jobs_at_full(curves: Iterable[JobCurve], limit: int) -> tuple[tuple[float, float], ...]:
    """(seconds, jobs that had trained to `limit` by then), from (0, 0) on."""
    at = sorted(float(curve.times[-1]) for curve in curves if len(curve.positions) and curve.positions[-1] >= limit)
    return ((0.0, 0.0), *((time, float(count)) for count, time in enumerate(at, 1)))


def _since(told: JournalStory, began: float) -> JournalStory:
    """The same in seconds since the experiment began."""
    return JournalStory(
        [replace(run, start=run.start - began, end=None if run.end is None else run.end - began) for run in told.runs],
        [(at - began, promising, others) for at, promising, others in told.pools],
        {job: [(at - began, label) for at, label in given] for job, given in told.labels.items()},
        [(at - began, slots, chances) for at, slots, chances in told.confidences],
        [_visit_since(visit, began) for visit in told.visits],
        told.held,
        [(at - began, direct, fetched, stored) for at, direct, fetched, stored in told.moved],
    )


def _visit_since(visit: PlottedVisit, began: float) -> PlottedVisit:
    started = None if visit.began is None else visit.began - began
    end = None if visit.end is None else visit.end - began
    return replace(visit, start=visit.start - began, began=started, end=end)


def _at(spec: Mapping[str, Any], *path: str) -> Any:
    """A term of the specification; None where it is not said."""
    value: Any = spec
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
