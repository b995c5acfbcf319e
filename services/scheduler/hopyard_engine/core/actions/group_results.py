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


def is_one(x: Stream, job: Job, source: str) -> bool:
    """Whether a job is one of another experiment of the group."""
    return source in x.jobs and x.jobs[source].member is not job.member


def adopt(x: Stream, job: Job, source: Job, position: int) -> None:
    """A job has another's results up to a position; those that it has itself stay as they are."""
    new = list(takewhile(lambda point: point.position > job.high_water, x.back(source, position)))
    reports = [Report(point.position, point.metrics, point.seconds) for point in reversed(new)]
    earlier_results.adopt(x, job, reports, position)


def take_over(x: Stream, job: Job, source: SnapshotId) -> SnapshotId:
    """A job has another's results up to a position, and its snapshot there, if there is one.

    Answers which of its own that is then.
    """
    name, position = source
    adopt(x, job, x.jobs[name], position)
    job.high_water = max(job.high_water, position)
    entry = x.snapshots.get(name, position)
    if entry is not None and entry.available:
        own = x.snapshots.copy(job.id, entry)
        if own is not None:  # Whoever brings the other one to the store may be told to stop.
            node = min(own.nodes)
            x.snapshots.order((job.id, position), node)
            x.emit(OrdersGiven(node))
        x.tidied = True
    return job.id, position
