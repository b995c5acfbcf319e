"""Finds the ancestors whose reports make up the beginning of a forked job's curve."""

from __future__ import annotations

from collections.abc import Collection

from hopyard.client.types import Job


def ancestor(job: Job, upto: float, passed: Collection[str]) -> str | None:
    """Return the id of the job that trained the part of `job` up to its fork position, or None if `job` trained it itself.

    Two jobs may have forked from each other at different times. The cycle ends at the job to which it returns: that
    job's first training was its own.

    Args:
        job: The current job on the path along the ancestors.
        upto: Position up to which the reports of `job` count for the curve.
        passed: Ids of the jobs that are already on the path.
    """
    if job.parent is None or job.id in passed or (upto <= job.fork_position and job.parent in passed):
        return None
    return job.parent
