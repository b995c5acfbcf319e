"""Runs and snapshots that are lost: where a job goes on from, and when it may try again."""

from __future__ import annotations

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
MISSES = 6
"""After so many vain tries a snapshot counts as lost, though a node still claims it: with the waits, some 15 seconds."""


def back_off(stream: Stream, job: Job, at: float) -> None:
    """A job that was lost or failed again without progress waits before its next try, twice as long each time."""
    if job.setbacks > 1 and job.state.idle:
        wait = min(FIRST_WAIT * 2 ** min(job.setbacks - 2, 16), LONGEST_WAIT)
        stream.withdraw(job)
        stream.set_timer(BackoffTimer(job.id), at + wait)


def is_backing_off(stream: Stream, job: Job) -> bool:
    """Whether a job waits after a loss or a failure."""
    return stream.due(BackoffTimer(job.id)) is not None


def end_backoff(stream: Stream, job: Job | None) -> None:
    """The wait after a loss or a failure is over."""
    if job is not None and job.state.idle and job.id not in stream.idle:
        stream.offer(job)
        stream.conversation.demand_outdated = stream.demand is not None


def missed(stream: Stream, source: SnapshotId, node: str) -> None:
    """The agent of a node found a snapshot neither on its own disk nor with the nodes that have it nor in the store.

    A node that is only away for a moment may bring it back, so it counts as lost when nobody claims it, or after some tries.
    """
    entry = stream.snapshots.get(*source)
    if entry is None:
        return
    if entry.stored:
        change_snapshot(entry, SnapshotState.LOCAL, f"a run on {node} did not find it in the store")
    entry.nodes.discard(node)
    stream.tidied = True
    entry.misses += 1
    if not entry.nodes or entry.misses >= MISSES:
        stream.snapshots.remove(entry)
        earlier_results.lend_no_more(stream, {entry.info.sha256})
        rewind_all(stream, [entry])


def rewind_all(stream: Stream, lost: list[SnapshotEntry]) -> None:
    """Some jobs lost a snapshot: that concerns them and those that were forked from them."""
    losers = {entry.job for entry in lost}
    for entry in lost:
        stream.drop(stream.snapshots.released(entry))
    if losers:
        for job in list(stream.jobs.values()):
            if job.id in losers or (job.forked and job.origin is not None and job.origin[0] in losers):
                _rewind(stream, job)


def _rewind(stream: Stream, job: Job) -> None:
    """A job without a run lost a snapshot: it waits with what is left."""
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
