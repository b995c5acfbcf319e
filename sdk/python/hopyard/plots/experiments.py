"""Builds the `Search` that a plot needs from an experiment of a cluster, read through a client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from hopyard._common.extras import install_command
from hopyard._common.plugins import TIMELINES, load_plugin, plugin_names
from hopyard.client.display.job_looks import LOOKS, NOT_STARTED, STOPPED, look_of
from hopyard.client.types import Experiment, Job, JobState, Metric, Statistic
from hopyard.client.wire import converters
from hopyard.errors import Unsupported
from hopyard.plots.model import JobCurve, JobEnd, JournalStory, PlottedVisit, Search, SearchSource

if TYPE_CHECKING:
    from hopyard.client.async_client import AsyncClient

Timeline: TypeAlias = Callable[["AsyncClient", Experiment, bool], Awaitable[JournalStory]]
"""Type of the plugins of the entry-point group `hopyard.timelines`: read the history of an experiment from its journal.

The bool says whether to compute the policy's estimates (`JournalStory.confidences`), too, which takes a replay of the policy.
"""

JOURNAL: Final = ("gantt", "gangs", "pools", "slots", "hops")
"""Kinds of plots that need the journal of the experiment."""

_ENDS: Final = {
    LOOKS[JobState.COMPLETED]: JobEnd.COMPLETED,
    STOPPED: JobEnd.STOPPED,
    NOT_STARTED: JobEnd.STOPPED,
    LOOKS[JobState.TERMINATED]: JobEnd.TERMINATED,
    LOOKS[JobState.FAILED]: JobEnd.FAILED,
}


async def read_experiment(client: AsyncClient, experiment: Experiment, kind: str | None = None) -> Search:
    """Return the current state of an experiment as a search.

    Args:
        client: Client of the experiment's cluster.
        experiment: The experiment.
        kind: The kind of plot to draw, which decides whether the journal is read: for the kinds in `JOURNAL` always, for "curves" if a
            policy gave priorities to jobs and the plugin is installed. None: not known, treated like "curves".

    Raises:
        Unsupported: The kind of plot needs the journal, and the plugin that reads it is not installed.
        HopyardError: An error of the client, for example if the cluster is not reachable.
    """
    jobs = await client.jobs(experiment)
    # Curves are coloured by the jobs' labels, or, if no plugin that reads the journal is installed, by how the jobs ended.
    labelled = kind in (None, "curves") and any(job.priority for job in jobs) and bool(plugin_names(TIMELINES))
    found = None
    if labelled or kind in JOURNAL:
        found = await timeline(kind or "curves")(client, experiment, kind == "slots")
    now = (await client.cluster()).now
    return search_of(experiment, jobs, await client.statistics(experiment), found, now)


def timeline(kind: str = "gantt") -> Timeline:
    """Return the plugin that reads an experiment's journal: a function that returns its history as a `JournalStory`.

    The plugin is part of the scheduler's distribution.

    Args:
        kind: The kind of plot that needs the journal, for the error message.

    Raises:
        Unsupported: The plugin is not installed.
    """
    if not plugin_names(TIMELINES):
        raise Unsupported(
            f"--kind {kind} of an experiment needs: {install_command('scheduler')}, which reads its journal"
        )
    found: Timeline = load_plugin(TIMELINES, "journal")  # type: ignore[assignment]  # what the group is for
    return found


def search_of(
    experiment: Experiment,
    jobs: Iterable[Job],
    statistics: Iterable[Statistic],
    story: JournalStory | None = None,
    now: float | None = None,
) -> Search:
    """Return an experiment as a search, from data that a client returned.

    Args:
        experiment: The experiment.
        jobs: The experiment's jobs in order of creation.
        statistics: All statistics of these jobs, ordered by job and position.
        story: The experiment's history from its journal; None: not read, and the fields that need it are None.
        now: Current time by the cluster's clock, in seconds since the Unix epoch: the end of a search that has not ended. None: the
            duration of such a search is unknown.
    """
    began, spec, metric = experiment.created_at, experiment.spec, experiment.metric
    story = None if story is None else _since(story, began)
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
        runs=None if story is None else tuple(story.runs),
        pools=None if story is None else tuple(story.pools) if story.labels else (),
        labels=None if story is None else {job: tuple(given) for job, given in story.labels.items()},
        confidences=None if story is None else tuple(story.confidences),
        slots_per_job=_at(spec, "policy", "slots_per_job") or 1,
        visits=None if story is None else tuple(story.visits),
        held=None if story is None else tuple(story.held),
        moved=None if story is None else tuple(story.moved),
        completed_jobs=None if limit is None else completed_jobs(curves, limit),
    )


def curve_of(job: Job, statistics: list[Statistic], metric: Metric, began: float) -> JobCurve:
    """Return the learning curve of a job.

    Reports at the same position, by ranks that evaluated different partitions, are averaged to one point, weighted by their numbers of
    examples. Its time is that of the last of these reports.

    Args:
        job: The job.
        statistics: The job's statistics, ordered by position.
        metric: The metric of the curve.
        began: Start of the experiment in seconds since the Unix epoch. Times of the curve count from it.
    """
    points = converters.curve(statistics, metric.name)
    at = {one.report.position: one.at for one in statistics}
    attempts = {one.report.position: one.attempt for one in statistics}
    pairs = enumerate(pairwise(points), 1)
    resumed = (index for index, (a, b) in pairs if attempts[a.position] != attempts[b.position])
    times = np.array([max(0.0, at[point.position] - began) for point in points], float)
    values = np.array([point.value for point in points], float)
    values[~np.isfinite(values)] = np.nan
    # Clocks of two nodes may differ, or a clock may have been set back between two runs: times must not fall.
    times = np.maximum.accumulate(times)
    positions = np.array([point.position for point in points], float)
    return JobCurve(
        job.id, _ENDS.get(look_of(job.state, job.reason_code), JobEnd.OPEN), times, positions, values, tuple(resumed)
    )


def _grown(curve: JobCurve, parent: JobCurve | None, position: int) -> JobCurve:
    """Return the curve of a forked job with one point of its parent's curve in front: the point from which it was forked.

    Return the curve unchanged if the job has no parent, if the parent has no point at exactly this position or reached it later than
    the job's first point, or if the job's own curve is empty or has the position.

    Args:
        curve: The job's curve.
        parent: The parent's curve; None: the job was not forked.
        position: Position of the fork.
    """
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
    """Return when the first job reached the target of the metric, in seconds since the search began.

    The target is reached by the value of one report, or by the mean of the last `metric.target_over` reports if that is more than 1.
    None: there is no target, or no job has reached it.
    """
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


def completed_jobs(curves: Iterable[JobCurve], limit: int) -> tuple[tuple[float, float], ...]:
    """Return pairs (seconds since the search began, number of jobs that reached position `limit` until then), starting with (0, 0)."""
    at = sorted(float(curve.times[-1]) for curve in curves if len(curve.positions) and curve.positions[-1] >= limit)
    return ((0.0, 0.0), *((time, float(count)) for count, time in enumerate(at, 1)))


def _since(story: JournalStory, began: float) -> JournalStory:
    """Return the history with times in seconds since `began`, which is the experiment's start in seconds since the Unix epoch."""
    return JournalStory(
        [replace(run, start=run.start - began, end=None if run.end is None else run.end - began) for run in story.runs],
        [(at - began, promising, others) for at, promising, others in story.pools],
        {job: [(at - began, label) for at, label in given] for job, given in story.labels.items()},
        [(at - began, slots, chances) for at, slots, chances in story.confidences],
        [_visit_since(visit, began) for visit in story.visits],
        story.held,
        [(at - began, direct, fetched, stored) for at, direct, fetched, stored in story.moved],
    )


def _visit_since(visit: PlottedVisit, began: float) -> PlottedVisit:
    started = None if visit.began is None else visit.began - began
    end = None if visit.end is None else visit.end - began
    return replace(visit, start=visit.start - began, began=started, end=end)


def _at(spec: Mapping[str, Any], *path: str) -> Any:
    """Return the value at a path of keys in a specification; None if a key is missing."""
    value: Any = spec
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
