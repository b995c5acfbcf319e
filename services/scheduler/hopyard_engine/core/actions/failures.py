"""Consequences of lost runs and snapshots: the position at which a job resumes, and its backoff before the next attempt."""

from __future__ import annotations

from collections.abc import Iterable

from hopyard.policy.vocabulary import JobState, RunEnd, RunEndReason
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions import earlier_results
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry, SnapshotId
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import BackoffTimer
from hopyard_engine.core.state_machines.snapshot_states import SnapshotState, change_snapshot

FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
"""The first and the longest backoff in seconds."""
MISSES = 6
"""Number of runs that fail to load a snapshot before it is considered lost although a node has it. With the backoff this takes about
15 s."""


def back_off(stream: Stream, job: Job, at: float) -> None:
    """Delay the next start of an idle job if two or more of its runs were lost or failed since its last new report; else do nothing.

    After the delay the job waits behind others, also if it was displaced (`Job.displaced`), because its own runs may cause the losses.

    The delay grows exponentially with their number. `at` is the time of the event in seconds since the Unix epoch.
    """
    if job.setbacks > 1 and job.state.idle:
        wait = min(FIRST_WAIT * 2 ** min(job.setbacks - 2, 16), LONGEST_WAIT)
        stream.withdraw(job)
        job.displaced = False
        stream.set_timer(BackoffTimer(job.id), at + wait)


def is_backing_off(stream: Stream, job: Job) -> bool:
    """Return whether a job is in backoff, so that it may not be started."""
    return stream.due(BackoffTimer(job.id)) is not None


def end_backoff(stream: Stream, job: Job | None) -> None:
    """Put a job whose backoff has elapsed into the idle queue. Does nothing if the job is None, not idle, or already there."""
    if job is not None and job.state.idle and job.id not in stream.idle:
        stream.offer(job)
        stream.conversation.demand_outdated = stream.demand is not None


def missed(stream: Stream, source: SnapshotId, nodes: Iterable[str]) -> None:
    """Record that a run could load the snapshot `source` neither from the nodes that have it nor from the store.

    A node with a copy may be disconnected only for a moment. So the snapshot is removed when no node has a copy, or after `MISSES`
    such runs. Then the jobs that depend on it are rewound. An unknown snapshot is ignored.

    Args:
        stream: The stream.
        source: The snapshot.
        nodes: The node of the run first, then the nodes that were asked; none of them has an undamaged copy.
    """
    entry = stream.snapshots.get(*source)
    if entry is None:
        return
    without = tuple(nodes)
    if entry.stored:
        change_snapshot(entry, SnapshotState.LOCAL, f"a run on {without[0]} did not find it in the store")
    entry.nodes.difference_update(without)
    stream.snapshots_changed = True
    entry.misses += 1
    if not entry.nodes or entry.misses >= MISSES:
        stream.snapshots.remove(entry)
        earlier_results.lend_no_more(stream, {entry.info.sha256})
        rewind_all(stream, [entry])


def rewind_all(stream: Stream, lost: list[SnapshotEntry]) -> None:
    """Delete the data of lost snapshots, and rewind the idle jobs that would have resumed from these snapshots.

    The remaining data of a lost snapshot is deleted from the store and from the nodes, unless another snapshot has the same hash. The
    rewound jobs are those whose snapshots were lost, and the forks of these jobs. A rewound job gets the position of the newest
    remaining snapshot that it can resume from.

    Args:
        stream: The stream.
        lost: The entries of the lost snapshots, which have been removed from the stream's snapshots.
    """
    losers = {entry.job for entry in lost}
    for entry in lost:
        stream.drop(stream.snapshots.released(entry))
    if losers:
        for job in list(stream.jobs.values()):
            if job.id in losers or (job.forked and job.origin is not None and job.origin[0] in losers):
                _rewind(stream, job)


def _rewind(stream: Stream, job: Job) -> None:
    """Set the position of an idle or HELD job to that of the newest remaining snapshot that it can resume from; without one, to 0.

    A fork without such a snapshot fails. Does nothing if the job is in another state.
    """
    if not (job.state.idle or job.state is JobState.HELD):
        return
    source = stream.source_of(job)
    position = source[1] if source is not None else 0
    if job.forked and source is None:
        stream.move(job, JobState.FAILED, Reason(ReasonCode.ORIGIN_LOST))
        stream.call(RunEnd(job.id, job.attempt, RunEndReason.LOST, job.position, 0, job.reason))
        return
    job.position = position
    if job.state is JobState.SUSPENDED and stream.snapshots.newest(job.id) is None:
        stream.move(job, JobState.PENDING, Reason(ReasonCode.SNAPSHOT_LOST))
    stream.changed(job)
