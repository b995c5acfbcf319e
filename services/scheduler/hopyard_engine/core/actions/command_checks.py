"""Checks of commands. Each returns the object that the command names, or raises `RefusedError`."""

from __future__ import annotations

from collections.abc import Mapping

from hopyard.policy.vocabulary import ExperimentId, ExperimentState
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions import failures
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state_machines.snapshot_states import SnapshotState


class RefusedError(Exception):
    """The core refuses a command.

    Attributes:
        reason: Why it is refused.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class NotYetError(RefusedError):
    """The core refuses a command that may succeed later. The policy gets its next up-call when the state has changed, not at once."""


def find_job(stream: Stream, job: str) -> Job:
    """Returns the job that a command names.

    Raises:
        RefusedError: The job does not exist.
    """
    found = stream.jobs.get(job)
    if found is None:
        raise RefusedError(Reason.of(ReasonCode.NO_SUCH_JOB, job=job))
    return found


def free(job: Job) -> Job:
    """Returns the job, if no person has paused it.

    Raises:
        NotYetError: A person has paused the job.
    """
    if job.held:
        raise NotYetError(Reason.of(ReasonCode.JOB_HELD, job=job.id))
    return job


def idle(stream: Stream, job: str) -> Job:
    """Returns a job that may be started now.

    Raises:
        RefusedError: The job is unknown or not idle.
        NotYetError: A person has paused the job, or it backs off after losses or failures.
    """
    found = free(find_job(stream, job))
    if not found.state.idle:
        raise RefusedError(Reason.of(ReasonCode.JOB_NOT_IDLE, job=job, state=found.state.value))
    if failures.is_backing_off(stream, found):
        raise NotYetError(Reason.of(ReasonCode.JOB_BACKS_OFF, job=job, setbacks=found.setbacks))
    return found


def run_of(stream: Stream, job: str) -> Run:
    """Returns a job's live run.

    Raises:
        RefusedError: The job is unknown, has no run, or its run has ended.
    """
    run = find_job(stream, job).run
    if run is None or run.ended is not None:
        raise RefusedError(Reason.of(ReasonCode.JOB_WITHOUT_RUN, job=job))
    return run


def find_experiment(stream: Stream, name: str) -> Experiment:
    """Returns the experiment of the stream that a command names.

    Raises:
        RefusedError: The experiment is unknown, ending or ended.
    """
    experiment = stream.experiments.get(ExperimentId(name))
    if experiment is None:
        raise RefusedError(no_experiment(stream, name))
    if experiment.state is ExperimentState.ENDING or experiment.state.ended:
        ending = experiment.state is ExperimentState.ENDING
        raise RefusedError(Reason(ReasonCode.EXPERIMENT_ENDING if ending else ReasonCode.EXPERIMENT_OVER))
    return experiment


def no_experiment(stream: Stream, name: str) -> Reason:
    """Returns the reason for a command that names an unknown experiment."""
    return Reason.of(ReasonCode.NO_SUCH_EXPERIMENT, experiment=name, experiments=", ".join(stream.experiments))


def snapshot(stream: Stream, source: tuple[str, int]) -> SnapshotEntry:
    """Returns the available snapshot (job, position) that a command names.

    Raises:
        RefusedError: There is no such snapshot.
    """
    entry = stream.snapshots.get(*source)
    if entry is None or not entry.available:
        raise RefusedError(Reason.of(ReasonCode.NO_SUCH_SNAPSHOT, job=source[0], position=source[1]))
    return entry


def values(stream: Stream, entry: SnapshotEntry, hyperparameters: Mapping[str, object]) -> None:
    """Checks that a job with these hyperparameters can resume from a snapshot.

    Raises:
        RefusedError: The snapshot is a process image with other hyperparameters.
    """
    owner = stream.jobs.get(entry.job)
    if entry.info.keeps_values and owner is not None and owner.hyperparameters != hyperparameters:
        kept = Reason.of(ReasonCode.SNAPSHOT_KEEPS_VALUES, job=entry.job, position=entry.info.position)
        raise RefusedError(kept)


def start(stream: Stream, source: tuple[str, int]) -> SnapshotEntry:
    """Returns the snapshot from which a run starts: a job's entry, or a temporary entry for a snapshot of an earlier experiment.

    Raises:
        RefusedError: There is no such snapshot.
    """
    name, position = source
    if name not in stream.earlier:
        return snapshot(stream, source)
    if position not in stream.earlier[name].snapshots:
        raise RefusedError(Reason.of(ReasonCode.NO_SUCH_EARLIER_SNAPSHOT, trial=name, position=position))
    return SnapshotEntry(name, stream.earlier[name].snapshots[position], state=SnapshotState.STORED)
