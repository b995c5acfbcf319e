"""Reuse of results between experiments of a group: a job gets its own copy of the reports and snapshots.

So an experiment does not depend on others for its best result, its target, its rows, and what it leaves when it ends. Between jobs of
one experiment nothing is copied (`Job.origin`).
"""

from __future__ import annotations

from itertools import takewhile

from hopyard.policy.vocabulary import Report
from hopyard_engine.core.actions import earlier_results
from hopyard_engine.core.effects import OrdersGiven
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.snapshot_entries import SnapshotId
from hopyard_engine.core.state.stream import Stream


def is_one(stream: Stream, job: Job, source: str) -> bool:
    """Returns whether `source` is a job of another experiment of the group than `job`'s."""
    return source in stream.jobs and stream.jobs[source].experiment is not job.experiment


def adopt(stream: Stream, job: Job, source: Job, position: int) -> None:
    """Copies results of another job into a job: those above the job's high-water mark, up to a position."""
    new = list(takewhile(lambda point: point.position > job.high_water, stream.back(source, position)))
    reports = [Report(point.position, point.metrics, point.seconds) for point in reversed(new)]
    earlier_results.adopt(stream, job, reports, position)


def take_over(stream: Stream, job: Job, source: SnapshotId) -> SnapshotId:
    """Copies another job's results up to a position into a job, and its snapshot at that position, if there is one.

    Returns:
        The id of the job's own snapshot.
    """
    name, position = source
    adopt(stream, job, stream.jobs[name], position)
    job.high_water = max(job.high_water, position)
    entry = stream.snapshots.get(name, position)
    if entry is not None and entry.available:
        own = stream.snapshots.copy(job.id, entry)
        if own is not None:  # The upload of the other one may be cancelled.
            node = min(own.nodes)
            stream.snapshots.order((job.id, position), node)
            stream.emit(OrdersGiven(node))
        stream.tidied = True
    return job.id, position
