"""Prefix joins: a job gets the results of another job that has itself continued the first job's training.

Example: job 1 trains up to position 4, job 2 continues from there to 8, and then job 1 is to get job 2's results. Normally a job
refers to another one's results by `Job.origin`: the id of the other job, and the position up to which its results are used. Here both
jobs would refer to each other, so the results are copied into job 1.
"""

from __future__ import annotations

from hopyard_engine.core.actions import group_results
from hopyard_engine.core.state.curve import same_metrics
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.snapshot_entries import SnapshotId
from hopyard_engine.core.state.stream import Stream


def rejoin(stream: Stream, job: Job, source: SnapshotId) -> bool:
    """Copy another job's results into `job`, if the other job has continued the training of `job` and their common results are equal.

    Args:
        stream: The stream of both jobs.
        job: The job.
        source: (id of the other job, position up to which its results are copied).

    Returns:
        Whether the results were copied. If False, nothing has changed.
    """
    other, position = source
    if not _descends(stream, other, job) or not agree(stream, job, stream.jobs[other], min(job.high_water, position)):
        return False
    group_results.adopt(stream, job, stream.jobs[other], position)
    return True


def agree(stream: Stream, one: Job, other: Job, position: int) -> bool:
    """Return whether two jobs have reports at the same positions with equal metrics, up to and including `position`.

    True also if neither job has reports there.
    """
    mine, theirs = ([point for point in stream.curve(each) if point.position <= position] for each in (one, other))
    return [p.position for p in mine] == [p.position for p in theirs] and all(
        same_metrics(first.metrics, second.metrics) for first, second in zip(mine, theirs, strict=True)
    )


def _descends(stream: Stream, name: str, ancestor: Job) -> bool:
    passed = set[str]()
    while name in stream.jobs and name not in passed:
        passed.add(name)
        origin = stream.jobs[name].origin
        if origin is None:
            return False
        name = origin[0]
        if name == ancestor.id:
            return True
    return False
