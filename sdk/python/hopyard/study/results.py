"""The result of an evaluation, and the error for an evaluation that failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hopyard.client.types import Job, JobState, Point
from hopyard.errors import HopyardError


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of training a configuration up to a position.

    Attributes:
        job: Id of the job that was trained.
        configuration: The trained configuration.
        position: The position reached, in the experiment's unit. It is lower than requested if the program ended earlier.
        value: The last reported value of the metric; NaN: never reported.
        metrics: All metrics of the last position by name; empty: never reported.
        curve: The metric at each position with a report, including the part that other jobs trained before a fork; empty:
            never reported.
        seconds: Training time of the whole curve, in seconds.
    """

    job: str
    configuration: Mapping[str, Any]
    position: int
    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()
    seconds: float = 0.0


class EvaluationFailed(HopyardError):
    """Raised when a configuration was not trained to its position: its job failed, or was terminated.

    Args:
        experiment: Id of the experiment.
        job: Id of the job.
        what: Verb of the message: "failed" or "was ended".
        reason: Why the job failed or was terminated, as a sentence; empty: unknown.

    Attributes:
        experiment: Id of the experiment.
        job: Id of the job.
        reason: Why the job failed or was terminated, as a sentence; empty: unknown.
    """

    def __init__(self, experiment: str, job: str, what: str, reason: str) -> None:
        super().__init__(f"job {job} of experiment {experiment} {what}: {reason or 'no reason was given'}")
        self.experiment, self.job, self.reason = experiment, job, reason


def failure_of(job: Job) -> EvaluationFailed | None:
    """Return the error for a job that failed or was terminated, or None for a job in any other state."""
    if job.state is JobState.FAILED:
        return EvaluationFailed(job.experiment, job.id, "failed", job.reason)
    if job.state is JobState.TERMINATED:
        return EvaluationFailed(job.experiment, job.id, "was ended", job.reason)
    return None
