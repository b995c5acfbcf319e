"""What stands against a command. Each check returns what the command names, or refuses."""

from __future__ import annotations

from collections.abc import Mapping

from hopyard.policy.vocabulary import ExperimentState
from hopyard_engine.core.actions import failures
from hopyard_engine.core.state.entities import Job, Run
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state_machines.snapshot_states import SnapshotState


class RefusedError(Exception):
    """A command that the core does not carry out; says what stands against it."""


class NotYetError(RefusedError):
    """A command that may be carried out later; the policy is asked again then, not at once."""


def find_job(stream: Stream, job: str) -> Job:
    """The job that a command names.

    Raises:
        RefusedError: There is none.
    """
    found = stream.jobs.get(job)
    if found is None:
        raise RefusedError(f"there is no job {job!r}")
    return found


def free(job: Job) -> Job:
    """The job, which no person has paused.

    Raises:
        RefusedError: A person has.
    """
    if job.held:
        raise NotYetError(f"job {job.id!r} is paused by a person")
    return job


def idle(stream: Stream, job: str) -> Job:
    """A job that may be started now.

    Raises:
        RefusedError: It is not idle, paused by a person, or waits after losses.
    """
    found = free(find_job(stream, job))
    if not found.state.idle:
        raise RefusedError(f"job {job!r} is {found.state.value}, not PENDING or SUSPENDED")
    if failures.is_backing_off(stream, found):
        raise NotYetError(f"job {job!r} waits for a moment after {found.setbacks} losses or failures")
    return found


def run_of(stream: Stream, job: str) -> Run:
    """A job's run.

    Raises:
        RefusedError: It has none.
    """
    run = find_job(stream, job).run
    if run is None or run.ended is not None:
        raise RefusedError(f"job {job!r} has no run")
    return run


def find_experiment(stream: Stream, name: str) -> Experiment:
    """The experiment of the group that a command names.

    Raises:
        RefusedError: There is none, or it is over or ending.
    """
    experiment = stream.experiments.get(name)
    if experiment is None:
        raise RefusedError(f"there is no experiment {name!r} in this group; there are: {', '.join(stream.experiments)}")
    if experiment.state is ExperimentState.ENDING or experiment.state.ended:
        raise RefusedError(
            "the experiment is ending" if experiment.state is ExperimentState.ENDING else "the experiment is over"
        )
    return experiment


def snapshot(stream: Stream, source: tuple[str, int]) -> SnapshotEntry:
    """The snapshot (job, position) that a command names.

    Raises:
        RefusedError: There is none.
    """
    entry = stream.snapshots.get(*source)
    if entry is None or not entry.available:
        raise RefusedError(f"job {source[0]!r} has no snapshot at position {source[1]}")
    return entry


def values(stream: Stream, entry: SnapshotEntry, hyperparameters: Mapping[str, object]) -> None:
    """See whether a job with such hyperparameters can go on from a snapshot of a job.

    Raises:
        RefusedError: It is of processes, which have others.
    """
    owner = stream.jobs.get(entry.job)
    if entry.info.keeps_values and owner is not None and owner.hyperparameters != hyperparameters:
        raise RefusedError(
            f"the snapshot of job {entry.job!r} at position {entry.info.position} holds its processes, which go on with its "
            "hyperparameters and no others; give hopyard.report() a checkpoint to fork with others"
        )


def start(stream: Stream, source: tuple[str, int]) -> SnapshotEntry:
    """The snapshot that a run is to start from: a job's, or an earlier experiment's as a job would have it.

    Raises:
        RefusedError: There is none.
    """
    name, position = source
    if name not in stream.earlier:
        return snapshot(stream, source)
    if position not in stream.earlier[name].snapshots:
        raise RefusedError(f"{name}, which was trained earlier, has no snapshot at position {position}")
    return SnapshotEntry(name, stream.earlier[name].snapshots[position], state=SnapshotState.STORED)
