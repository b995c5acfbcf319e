"""Finds the jobs whose reports form the beginning of a forked job's learning curve.

The curve of a forked job consists of the reports of the job it was forked from, up to the fork position, and of its own.
"""

from __future__ import annotations

from collections.abc import Collection

from hopyard.client.types import Job


def ancestor(job: Job, upto: float, passed: Collection[str]) -> str | None:
    """Return the id of the job whose reports come before those of `job` in a learning curve: the job from which it was forked.

    To find all jobs of a curve, begin with the last one and repeat the call for each returned job. The search always ends, also if two
    jobs were forked from each other at different times.

    Args:
        job: The job that the search has reached.
        upto: Position up to which the reports of `job` belong to the curve; infinite for the first job of the search.
        passed: Ids of the jobs that the search has reached before.

    Returns:
        The id; None: the search ends, since `job` is not a fork, or the search would return to a job that it has reached before.
    """
    if job.parent is None or job.id in passed or (upto <= job.fork_position and job.parent in passed):
        return None
    return job.parent
