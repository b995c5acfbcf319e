"""A metric that no report contains: when the experiment is paused for it, and how it gets another metric."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace

from hopyard.policy.vocabulary import RunMode
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions.objective import judge
from hopyard_engine.core.effects import ExperimentChanged
from hopyard_engine.core.state.curve import CurveEntry
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.experiment import GeneratorCall
from hopyard_engine.core.state.stream import Stream

MOST_NAMED = 10
"""Maximum number of metrics that a reason names."""


def cause(stream: Stream, job: Job, run: Run, point: CurveEntry) -> Reason | None:
    """Return why an experiment must be paused after a new report without its metric; None: it need not be paused.

    It is paused if it is RUNNING, none of its jobs has ever reported the metric, and the job of this report has reported
    `Settings.metric_every` times without it. It is paused once for each name of its metric, so it continues if a person resumes it
    with the same name. A job's training reports do not count if other runs evaluate it on partitions of the data.

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
        if stream.data is not None and stream.data.evaluated:
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


def obstacle(stream: Stream, metric: str) -> Reason | None:
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


def rename(stream: Stream, metric: str) -> None:
    """Give all experiments of a stream the metric `metric`, and rate the reports of their jobs by it.

    To be called if there is no `obstacle`. The experiments of a group have one metric, so all of them change. Results of ended jobs
    that generators have received are recorded anew, and the generators will be created again.
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
