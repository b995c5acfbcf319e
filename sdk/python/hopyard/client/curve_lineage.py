"""Whose reports make up the curve of a job that went on from another's training."""

from __future__ import annotations

from collections.abc import Collection

from hopyard.client.types import Job


def ancestor(job: Job, upto: float, passed: Collection[str]) -> str | None:
    """The job that trained, up to `job.fork_position`, what a job had trained up to a position; None: it did all of that itself.

    Two jobs may each have taken a state of the other, at different times. Then the one to which the way comes back began by itself.

    Args:
        job: Where the way along the ancestors is.
        upto: Up to where its training counts.
        passed: The jobs before it on the way.
    """
    if job.parent is None or job.id in passed or (upto <= job.fork_position and job.parent in passed):
        return None
    return job.parent
