"""Checks of commands. Most of them return the object that a command names; all raise `RefusedError` if the command is invalid."""

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
    """Raised if the core refuses a command of the policy, a person or a client.

    Attributes:
        reason: Why the command is refused.
    """

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class NotYetError(RefusedError):
    """Raised if the core refuses a command of the policy that may succeed later, for example when a person has unpaused the job.

    Other refusals cause an `AllocateJobs` up-call, which asks the policy for further commands. This one does not, because the policy
    would only repeat the command.
    """


def find_job(stream: Stream, job: str) -> Job:
    """Return the job of the stream with the id `job`.

    Raises:
        RefusedError: The stream has no such job.
    """
    found = stream.jobs.get(job)
    if found is None:
        raise RefusedError(Reason.of(ReasonCode.NO_SUCH_JOB, job=job))
    return found


def free(job: Job) -> Job:
    """Return `job` if no person has paused it.

    Raises:
        NotYetError: A person has paused the job.
    """
    if job.held:
        raise NotYetError(Reason.of(ReasonCode.JOB_HELD, job=job.id))
    return job


def idle(stream: Stream, job: str) -> Job:
    """Return the job with the id `job`, which must be idle and free to start now.

    Raises:
        RefusedError: The job is unknown, or it is not idle although no person has paused it.
        NotYetError: A person has paused the job, whatever its state, or it is idle and in backoff after losses or failures.
    """
    found = free(find_job(stream, job))
    if not found.state.idle:
        raise RefusedError(Reason.of(ReasonCode.JOB_NOT_IDLE, job=job, state=found.state.value))
    if failures.is_backing_off(stream, found):
        raise NotYetError(Reason.of(ReasonCode.JOB_BACKS_OFF, job=job, setbacks=found.setbacks))
    return found


def run_of(stream: Stream, job: str) -> Run:
    """Return the live run of the job with the id `job`.

    Raises:
        RefusedError: The job is unknown, has no run, or its run has ended.
    """
    run = find_job(stream, job).run
    if run is None or run.ended is not None:
        raise RefusedError(Reason.of(ReasonCode.JOB_WITHOUT_RUN, job=job))
    return run


def find_experiment(stream: Stream, name: str) -> Experiment:
    """Return the experiment of the stream with the id `name`.

    Raises:
        RefusedError: The experiment is unknown, ENDING or ended.
    """
    experiment = stream.experiments.get(ExperimentId(name))
    if experiment is None:
        raise RefusedError(no_experiment(stream, name))
    if experiment.state is ExperimentState.ENDING or experiment.state.ended:
        ending = experiment.state is ExperimentState.ENDING
        raise RefusedError(Reason(ReasonCode.EXPERIMENT_ENDING if ending else ReasonCode.EXPERIMENT_OVER))
    return experiment


def no_experiment(stream: Stream, name: str) -> Reason:
    """Return the reason to refuse a command that names the unknown experiment `name`. It lists the experiments of the stream."""
    return Reason.of(ReasonCode.NO_SUCH_EXPERIMENT, experiment=name, experiments=", ".join(stream.experiments))


def snapshot(stream: Stream, source: tuple[str, int]) -> SnapshotEntry:
    """Return the available snapshot that `source` (job id, position) names.

    Raises:
        RefusedError: There is no such snapshot, or no copy of it can be loaded.
    """
    entry = stream.snapshots.get(*source)
    if entry is None or not entry.available:
        raise RefusedError(Reason.of(ReasonCode.NO_SUCH_SNAPSHOT, job=source[0], position=source[1]))
    return entry


def values(stream: Stream, entry: SnapshotEntry, hyperparameters: Mapping[str, object]) -> None:
    """Check that a job with the given hyperparameters can resume from the snapshot `entry`.

    Raises:
        RefusedError: The snapshot is a process image, which restores the hyperparameters of its job, and these differ.
    """
    owner = stream.jobs.get(entry.job)
    if entry.info.keeps_values and owner is not None and owner.hyperparameters != hyperparameters:
        kept = Reason.of(ReasonCode.SNAPSHOT_KEEPS_VALUES, job=entry.job, position=entry.info.position)
        raise RefusedError(kept)


def start(stream: Stream, source: tuple[str, int]) -> SnapshotEntry:
    """Return the snapshot from which a run starts.

    Args:
        stream: The stream of the run.
        source: (job id, position), or (name, position) with the name of a training of an earlier experiment: a key of
            `Stream.earlier`. For an earlier experiment the result is a new entry that is not in `Stream.snapshots`.

    Raises:
        RefusedError: There is no such snapshot, or no copy of it can be loaded.
    """
    name, position = source
    if name not in stream.earlier:
        return snapshot(stream, source)
    if position not in stream.earlier[name].snapshots:
        raise RefusedError(Reason.of(ReasonCode.NO_SUCH_EARLIER_SNAPSHOT, trial=name, position=position))
    return SnapshotEntry(name, stream.earlier[name].snapshots[position], state=SnapshotState.STORED)
