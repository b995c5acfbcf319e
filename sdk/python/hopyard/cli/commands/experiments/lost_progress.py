"""What an extension or a retry of an experiment trains again, because no snapshot has the progress of the jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hopyard._common import formatting
from hopyard.client.types import Job, JobState
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode


@dataclass(frozen=True, slots=True)
class LostProgress:
    """Progress that is trained again when jobs continue.

    Attributes:
        jobs: Number of jobs that go back.
        iterations: Number of iterations that they train again, together.
    """

    jobs: int = 0
    iterations: int = 0

    def __str__(self) -> str:
        """Return a sentence for people; empty: nothing is trained again."""
        if not self.jobs:
            return ""
        jobs, iterations = formatting.count(self.jobs, "job"), formatting.count(self.iterations, "iteration")
        verb, what = ("goes", "its") if self.jobs == 1 else ("go", "their")
        return f"{jobs} {verb} back and would train {iterations} again: no snapshot of {what} progress is left"


def of_extension(jobs: Iterable[Job], max_iterations: int, seconds: float) -> LostProgress:
    """Return what an extension trains again.

    A new length continues the completed jobs, and more time the jobs that the time limit stopped.

    Args:
        jobs: All jobs of the experiment.
        max_iterations: The new length of a job; 0: unchanged.
        seconds: Additional seconds; 0: none.
    """
    longer = [job for job in jobs if job.state is JobState.COMPLETED and job.reached < max_iterations]
    late = [job for job in jobs if seconds and _out_of_time(job)]
    return of_jobs(longer + late)


def of_jobs(jobs: Iterable[Job]) -> LostProgress:
    """Return what these jobs train again when they continue, each from its newest snapshot that the store or a node has.

    A forked job without such a snapshot begins where it was forked, any other at position 0.
    """
    lost = [job.reached - _resumes_at(job) for job in jobs]
    return LostProgress(sum(count > 0 for count in lost), sum(max(count, 0) for count in lost))


def _out_of_time(job: Job) -> bool:
    cause = job.reason_args.get("cause")
    stopped = job.reason_code is ReasonCode.STOPPED_WITH_EXPERIMENT
    return stopped and isinstance(cause, Reason) and cause.code is ReasonCode.TIME_OVER


def _resumes_at(job: Job) -> int:
    available = [one.position for one in job.snapshots if one.stored or one.nodes]
    return max(available, default=job.fork_position)
