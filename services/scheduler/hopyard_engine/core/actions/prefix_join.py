"""Prefix joins: a job gets the results of another job that continued the first one's own training.

Example: job 1 trains up to 4, job 2 continues from there to 8, and then job 1 is to have job 2's results. Normally a job refers to
the results of another one by `Job.origin`. Here both jobs would refer to each other, so job 1 copies the results instead.
"""

from __future__ import annotations

from hopyard_engine.core.actions import group_results
from hopyard_engine.core.state.curve import same_metrics
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.snapshot_entries import SnapshotId
from hopyard_engine.core.state.stream import Stream


def rejoin(stream: Stream, job: Job, source: SnapshotId) -> bool:
    """Copies the results of a job that continued this one. Returns False if it did not, or if their results differ."""
    other, position = source
    if not _descends(stream, other, job) or not agree(stream, job, stream.jobs[other], min(job.high_water, position)):
        return False
    group_results.adopt(stream, job, stream.jobs[other], position)
    return True


def agree(stream: Stream, one: Job, other: Job, position: int) -> bool:
    """Returns whether two jobs have the same results up to a position."""
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
