"""Retries: a person lets failed jobs start again."""

from __future__ import annotations

from hopyard.policy.vocabulary import ExperimentChange, ExperimentState, JobState
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions import experiment_state
from hopyard_engine.core.effects import ExperimentChanged, Refused
from hopyard_engine.core.events import JobsRetried
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream


def retry(stream: Stream, event: JobsRetried) -> None:
    """Make failed jobs idle again, so that their next runs start from their newest snapshots.

    A job without snapshots starts from the snapshot of the job that it was forked from, else from the beginning. Failures and lost runs
    are counted from zero again. An ended experiment continues. If one of the jobs cannot start again, none is changed, and the effect
    `Refused` has the reason.
    """
    experiment = stream.experiments[event.experiment]
    obstacle = _obstacle(stream, experiment, event.jobs)
    if obstacle is not None:
        stream.emit(Refused(stream.id, "", Reason.of(ReasonCode.RETRY_REFUSED, cause=obstacle)))
        return
    # A repetition of a refused request is refused again: nothing says to its client that it was answered before.
    stream.requests.add(event.request)
    for name in event.jobs:
        _retry(stream, stream.jobs[name])
    experiment.unable.clear()
    if experiment.state.ended:
        experiment_state.reopen(stream, experiment)
        experiment_state.start_clock(stream, experiment, event.at)
    stream.wake()
    stream.conversation.demand_outdated = stream.demand is not None
    stream.call(ExperimentChange("extended", experiment.id))
    stream.emit(ExperimentChanged(experiment.id))


def _obstacle(stream: Stream, experiment: Experiment, names: tuple[str, ...]) -> Reason | None:
    """Return why one of the jobs cannot start again; None: all can."""
    if stream.quarantined:
        return stream.reason
    if experiment.state is ExperimentState.ENDING:
        return Reason(ReasonCode.EXPERIMENT_ENDING)
    for name in names:
        job = stream.jobs.get(name)
        if job is None or job.experiment is not experiment:
            return Reason.of(ReasonCode.NO_SUCH_JOB, job=name)
        if job.state is not JobState.FAILED:
            return Reason.of(ReasonCode.JOB_NOT_FAILED, job=name, state=job.state.value)
        if job.hyperparameters is None:
            return Reason.of(ReasonCode.JOB_WITHOUT_CONFIGURATION, job=name)
        if job.forked and stream.source_of(job) is None:
            return Reason.of(ReasonCode.JOB_WITHOUT_ORIGIN, job=name)
    return None


def _retry(stream: Stream, job: Job) -> None:
    own, source = stream.snapshots.newest(job.id), stream.source_of(job)
    job.failures = job.losses = job.setbacks = job.unsaved = 0
    job.failure = None
    job.unable.clear()
    job.position = source[1] if source is not None else 0
    job.kept = None
    if own is None and source is not None:  # The job starts from its origin's snapshot again.
        job.fork_pin = source
        stream.snapshots.pin(source, job.fork_holder)
    stream.move(job, JobState.SUSPENDED if own is not None else JobState.PENDING, Reason(ReasonCode.RETRIED_BY_PERSON))
