"""A job that goes on from, or is answered by, what another one trained behind its own training.

It trains up to 4, waits, and another one goes on from there to 8: now it is to have that one's results. Jobs of one experiment refer to
each other's results (`Job.origin`), but these two would refer to each other, and nobody could tell where either begins.
"""

from __future__ import annotations

from hopyard_engine.core.actions import group_results
from hopyard_engine.core.state.curve import same_metrics
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.snapshot_entries import SnapshotId
from hopyard_engine.core.state.stream import Stream


def rejoin(stream: Stream, job: Job, source: SnapshotId) -> bool:
    """Gives a job the results of another one that continued it, as its own. False: it did not, or not as the job has gone on since."""
    other, position = source
    if not _descends(stream, other, job) or not agree(stream, job, stream.jobs[other], min(job.high_water, position)):
        return False
    group_results.adopt(stream, job, stream.jobs[other], position)
    return True


def agree(stream: Stream, one: Job, other: Job, position: int) -> bool:
    """Whether two jobs have the same results up to a position."""
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
