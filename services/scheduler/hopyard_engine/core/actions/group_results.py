"""What experiments of a group take over from each other: results become reports of their own, snapshots become their own, too.

So what an experiment has stands by itself: its best result, its target, its rows, what it leaves when it is over. Between jobs of one
experiment nothing is copied (`Job.origin`).
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
    """Whether a job is one of another experiment of the group."""
    return source in stream.jobs and stream.jobs[source].experiment is not job.experiment


def adopt(stream: Stream, job: Job, source: Job, position: int) -> None:
    """A job has another's results up to a position; those that it has itself stay as they are."""
    new = list(takewhile(lambda point: point.position > job.high_water, stream.back(source, position)))
    reports = [Report(point.position, point.metrics, point.seconds) for point in reversed(new)]
    earlier_results.adopt(stream, job, reports, position)


def take_over(stream: Stream, job: Job, source: SnapshotId) -> SnapshotId:
    """A job has another's results up to a position, and its snapshot there, if there is one.

    Answers which of its own that is then.
    """
    name, position = source
    adopt(stream, job, stream.jobs[name], position)
    job.high_water = max(job.high_water, position)
    entry = stream.snapshots.get(name, position)
    if entry is not None and entry.available:
        own = stream.snapshots.copy(job.id, entry)
        if own is not None:  # Whoever brings the other one to the store may be told to stop.
            node = min(own.nodes)
            stream.snapshots.order((job.id, position), node)
            stream.emit(OrdersGiven(node))
        stream.tidied = True
    return job.id, position
