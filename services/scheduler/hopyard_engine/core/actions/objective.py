"""The objective of an experiment, its metric: the best report of each job, the best job, and what happens if no report contains it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import replace

from hopyard.policy.vocabulary import RunMode
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.effects import ExperimentChanged
from hopyard_engine.core.state.curve import CurveEntry
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.experiment import GeneratorCall
from hopyard_engine.core.state.stream import Stream

MOST_NAMED = 10
"""Maximum number of metrics that a reason names."""


def judge(stream: Stream, job: Job, position: int, value: float | None) -> None:
    """Update the best report of a job and of its experiment after a report.

    If the best report is at this position, the best one is determined again, because the value at a position changes with each further
    part of an evaluation that several runs perform, each on one partition of the data.

    Args:
        stream: The stream of the job.
        job: The job.
        position: Position of the report.
        value: The experiment's metric at this position; None: the report does not contain it. Infinite and NaN values are never best.
    """
    if value is None:
        return
    job.experiment.measured = True
    before = job.best
    if before is not None and before[1] == position:
        job.best = _best_of(stream, job)
    elif math.isfinite(value) and (before is None or _beats(stream, value, before[0])):
        job.best = (value, position)
    if job.best == before:
        return
    experiment = job.experiment
    previous = experiment.best
    if previous is not None and previous[0] == job.id and _worse(stream, job, previous):
        # A further part of an evaluation made the best value worse.
        rated = [j for j in stream.jobs.values() if j.experiment is experiment and j.best is not None]
        experiment.best = max(
            ((j.id, j.best[1], j.best[0]) for j in rated if j.best), key=lambda b: stream.sign(b[2]), default=None
        )
    elif job.best is not None and (
        previous is None or previous[0] == job.id or _beats(stream, job.best[0], previous[2])
    ):
        experiment.best = (job.id, job.best[1], job.best[0])
    best = experiment.best
    stream.snapshots_changed = stream.snapshots_changed or best != previous
    if previous is not None and best is not None and best[0] != previous[0] and stream.jobs[previous[0]].state.ended:
        stream.collect(stream.jobs[previous[0]])


def _worse(stream: Stream, job: Job, best: tuple[str, int, float]) -> bool:
    return job.best is None or _beats(stream, best[2], job.best[0])


def _beats(stream: Stream, value: float, other: float) -> bool:
    return stream.sign(value) > stream.sign(other)


def _best_of(stream: Stream, job: Job) -> tuple[float, int] | None:
    values = [(p.metrics.get(stream.settings.metric), p.position) for p in job.curve.points.values()]
    finite = [(v, position) for v, position in values if v is not None and math.isfinite(v)]
    return max(finite, key=lambda item: (stream.sign(item[0]), -item[1])) if finite else None


def missing_metric(stream: Stream, job: Job, run: Run, point: CurveEntry) -> Reason | None:
    """Return why an experiment must be paused after a new report without its metric; None: it need not be paused.

    It is paused if it is RUNNING, none of its jobs has ever reported the metric, and the job of this report has reported
    `Settings.metric_every` times without it. It is paused once for each name of its metric, so it continues if a person resumes it
    with the same name. Training reports do not count if other runs evaluate the job: if there are partitions for evaluation, or if
    the policy gave the run inputs, as it does to train on one partition of the data after another.

    Args:
        stream: The stream of the job.
        job: The job.
        run: The run that reported.
        point: The entry of the job's curve to which the report was added.
    """
    experiment, settings = job.experiment, stream.settings
    if experiment.measured or experiment.paused_for == settings.metric or not experiment.running:
        return None
    if run.mode is RunMode.TRAIN:
        if run.inputs or (stream.data is not None and stream.data.evaluated):
            return None
        reports = sum(entry.whole is not None for entry in job.curve.points.values())
    elif point.complete:
        reports = sum(bool(entry.parts) and entry.complete for entry in job.curve.points.values())
    else:
        return None
    if reports < job.terms.metric_every:
        return None
    found = sorted({name for entry in job.curve.points.values() for name in entry.metrics})
    return Reason.of(
        ReasonCode.METRIC_MISSING,
        metric=settings.metric,
        job=job.id,
        position=point.position,
        reported=_listed(found) or "no metric",
        experiment=experiment.id,
        name=nearest(settings.metric, found) or "NAME",
    )


def nearest(metric: str, names: Iterable[str]) -> str:
    """Return the name that is meant by `metric`: the only one, the one that contains it or that it contains, or a similar one.

    Upper and lower case are equal here. Of several names that contain `metric` or that it contains, the one with the closest length
    is returned. Empty: there is no such name.
    """
    folded = {name.casefold(): name for name in sorted(names, reverse=True)}
    wanted = metric.casefold()
    if len(folded) == 1:
        return next(iter(folded.values()))
    akin = [name for name in folded if name in wanted or wanted in name]
    akin.sort(key=lambda name: (abs(len(name) - len(wanted)), name))
    near = akin or difflib.get_close_matches(wanted, sorted(folded), n=1)
    return folded[near[0]] if near else ""


def metric_obstacle(stream: Stream, metric: str) -> Reason | None:
    """Return why the experiments of a stream cannot get the metric `metric`; None: they can.

    They can while no decision depends on the present metric: no report contains it, and no generator has proposed a configuration after
    a result. If there are reports, one must contain the new metric.
    """
    present = stream.settings.metric
    for job in stream.jobs.values():
        if any(present in entry.metrics for entry in job.curve.points.values()):
            return Reason.of(ReasonCode.METRIC_REPORTED, metric=present, job=job.id)
    for experiment in stream.experiments.values():
        kinds = [call.kind for call in experiment.generator_calls]
        told = next((index for index, kind in enumerate(kinds) if kind != "create"), len(kinds))
        if "create" in kinds[told:]:
            return Reason.of(ReasonCode.METRIC_LEARNED, metric=present, experiment=experiment.id)
    names = {name for job in stream.jobs.values() for entry in job.curve.points.values() for name in entry.metrics}
    if names and metric not in names:
        return Reason.of(ReasonCode.METRIC_NOT_REPORTED, metric=metric, reported=_listed(sorted(names)))
    return None


def rename_metric(stream: Stream, metric: str) -> None:
    """Give all experiments of a stream the metric `metric`, and rate the reports of their jobs by it.

    To be called if there is no `metric_obstacle`. The experiments of a group have one metric, so all of them change. Results of ended
    jobs that generators have received are recorded anew, and the generators will be created again.
    """
    for experiment in stream.experiments.values():
        experiment.settings = replace(experiment.settings, metric=metric)
        experiment.changed = True
        experiment.told_generator = 0
        stream.emit(ExperimentChanged(experiment.id))
    for job in stream.jobs.values():
        for entry in job.curve.points.values():
            value = entry.metrics.get(metric)
            job.last = job.last if value is None else value
            judge(stream, job, entry.position, value)
        stream.changed(job)
    for experiment in stream.experiments.values():
        experiment.generator_calls[:] = [_rated(stream, call) for call in experiment.generator_calls]


def _rated(stream: Stream, call: GeneratorCall) -> GeneratorCall:
    job = stream.jobs.get(call.job)
    if call.kind != "final" or job is None:
        return call
    metrics, position = stream.best_metrics(job)
    return replace(call, metrics=metrics, position=position)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
