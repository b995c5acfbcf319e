"""Finds the jobs whose reports form the beginning of a forked job's learning curve.

The curve of a forked job consists of the reports of the job it was forked from, up to the fork position, and of its own.
"""

from __future__ import annotations

from collections.abc import Collection

from hopyard.client.types import Job


def ancestor(job: Job, upto: float, passed: Collection[str]) -> str | None:
    """Return the id of the job that trained the beginning of `job` up to its fork position, or None if `job` itself trained it.

    A caller starts with a forked job and repeats the call for each returned job. Two jobs may each have been forked from the
    other at different times. The search then ends at the first job that is reached twice.

    Args:
        job: The job reached by the search.
        upto: Position up to which the reports of `job` belong to the curve.
        passed: Ids of the jobs that the search has reached before.
    """
    if job.parent is None or job.id in passed or (upto <= job.fork_position and job.parent in passed):
        return None
    return job.parent
