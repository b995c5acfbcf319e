"""Reuse of results between experiments of a group: a job gets a copy of another job's reports and snapshots.

So the best result, the target, the rows in AppStat and the remaining snapshots of an experiment do not depend on other experiments.
Between jobs of one experiment nothing is copied: `Job.origin` has the id of the other job and the position up to which its results
are used.
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
    """Return whether `source` is the id of a job of another experiment of the group than that of `job`. False if it is no job's id."""
    return source in stream.jobs and stream.jobs[source].experiment is not job.experiment


def adopt(stream: Stream, job: Job, source: Job, position: int) -> None:
    """Copy the reports of the job `source` into `job`: those above `job.high_water`, up to and including `position`.

    `job.high_water` is the highest position at which `job` has a result.
    """
    new = list(takewhile(lambda point: point.position > job.high_water, stream.back(source, position)))
    reports = [Report(point.position, point.metrics, point.seconds) for point in reversed(new)]
    earlier_results.adopt(stream, job, reports, position)


def take_over(stream: Stream, job: Job, source: SnapshotId) -> SnapshotId:
    """Copy another job's results up to a position into a job: its reports and, if it has a snapshot at that position, the snapshot.

    Args:
        stream: The stream of both jobs.
        job: The job.
        source: (id of the other job, position up to which its results are copied). The stream must have this job.

    Returns:
        (id of `job`, position): the id of the copied snapshot. It is returned even if there was no snapshot to copy.
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
        stream.snapshots_changed = True
    return job.id, position
