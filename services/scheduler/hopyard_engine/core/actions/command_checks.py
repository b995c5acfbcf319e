"""What stands against a command. Each check returns what the command names, or refuses."""

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
    """A command that the core does not carry out.

    Attributes:
        reason: What stands against it.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class NotYetError(RefusedError):
    """A command that may be carried out later; the policy is asked again then, not at once."""


def find_job(stream: Stream, job: str) -> Job:
    """The job that a command names.

    Raises:
        RefusedError: There is none.
    """
    found = stream.jobs.get(job)
    if found is None:
        raise RefusedError(Reason.of(ReasonCode.NO_SUCH_JOB, job=job))
    return found


def free(job: Job) -> Job:
    """The job, which no person has paused.

    Raises:
        RefusedError: A person has.
    """
    if job.held:
        raise NotYetError(Reason.of(ReasonCode.JOB_HELD, job=job.id))
    return job


def idle(stream: Stream, job: str) -> Job:
    """A job that may be started now.

    Raises:
        RefusedError: It is not idle, paused by a person, or waits after losses.
    """
    found = free(find_job(stream, job))
    if not found.state.idle:
        raise RefusedError(Reason.of(ReasonCode.JOB_NOT_IDLE, job=job, state=found.state.value))
    if failures.is_backing_off(stream, found):
        raise NotYetError(Reason.of(ReasonCode.JOB_BACKS_OFF, job=job, setbacks=found.setbacks))
    return found


def run_of(stream: Stream, job: str) -> Run:
    """A job's run.

    Raises:
        RefusedError: It has none.
    """
    run = find_job(stream, job).run
    if run is None or run.ended is not None:
        raise RefusedError(Reason.of(ReasonCode.JOB_WITHOUT_RUN, job=job))
    return run


def find_experiment(stream: Stream, name: str) -> Experiment:
    """The experiment of the group that a command names.

    Raises:
        RefusedError: There is none, or it is over or ending.
    """
    experiment = stream.experiments.get(ExperimentId(name))
    if experiment is None:
        raise RefusedError(no_experiment(stream, name))
    if experiment.state is ExperimentState.ENDING or experiment.state.ended:
        ending = experiment.state is ExperimentState.ENDING
        raise RefusedError(Reason(ReasonCode.EXPERIMENT_ENDING if ending else ReasonCode.EXPERIMENT_OVER))
    return experiment


def no_experiment(stream: Stream, name: str) -> Reason:
    """That the stream has no experiment of this name."""
    return Reason.of(ReasonCode.NO_SUCH_EXPERIMENT, experiment=name, experiments=", ".join(stream.experiments))


def snapshot(stream: Stream, source: tuple[str, int]) -> SnapshotEntry:
    """The snapshot (job, position) that a command names.

    Raises:
        RefusedError: There is none.
    """
    entry = stream.snapshots.get(*source)
    if entry is None or not entry.available:
        raise RefusedError(Reason.of(ReasonCode.NO_SUCH_SNAPSHOT, job=source[0], position=source[1]))
    return entry


def values(stream: Stream, entry: SnapshotEntry, hyperparameters: Mapping[str, object]) -> None:
    """See whether a job with such hyperparameters can go on from a snapshot of a job.

    Raises:
        RefusedError: It is of processes, which have others.
    """
    owner = stream.jobs.get(entry.job)
    if entry.info.keeps_values and owner is not None and owner.hyperparameters != hyperparameters:
        kept = Reason.of(ReasonCode.SNAPSHOT_KEEPS_VALUES, job=entry.job, position=entry.info.position)
        raise RefusedError(kept)


def start(stream: Stream, source: tuple[str, int]) -> SnapshotEntry:
    """The snapshot that a run is to start from: a job's, or an earlier experiment's as a job would have it.

    Raises:
        RefusedError: There is none.
    """
    name, position = source
    if name not in stream.earlier:
        return snapshot(stream, source)
    if position not in stream.earlier[name].snapshots:
        raise RefusedError(Reason.of(ReasonCode.NO_SUCH_EARLIER_SNAPSHOT, trial=name, position=position))
    return SnapshotEntry(name, stream.earlier[name].snapshots[position], state=SnapshotState.STORED)
