"""What a study answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hopyard.client.types import Job, JobState, Point
from hopyard.errors import HopyardError


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A configuration that was trained to a position.

    Attributes:
        job: Id of the job that stands for it.
        configuration: What was trained.
        position: How far, in the experiment's unit; less than what was asked for where the program ended by itself.
        value: The metric as it was reported last; NaN: never.
        metrics: All that was reported last, by name.
        curve: The metric at each position where it was reported, what others have trained for it included.
        seconds: Training time of all of the curve.
    """

    job: str
    configuration: Mapping[str, Any]
    position: int
    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    curve: tuple[Point, ...] = ()
    seconds: float = 0.0


class EvaluationFailed(HopyardError):
    """A configuration could not be trained to its position: its job failed, or somebody ended it.

    Attributes:
        experiment: Id of the experiment.
        job: Id of the job.
        reason: What became of it, in words.
    """

    def __init__(self, experiment: str, job: str, what: str, reason: str) -> None:
        """Say which job, and why."""
        super().__init__(f"job {job} of experiment {experiment} {what}: {reason or 'no reason was given'}")
        self.experiment, self.job, self.reason = experiment, job, reason


def failure_of(job: Job) -> EvaluationFailed | None:
    """What is raised for a job that has ended without its answer; None: it has one, or may get one."""
    if job.state is JobState.FAILED:
        return EvaluationFailed(job.experiment, job.id, "failed", job.reason)
    if job.state is JobState.TERMINATED:
        return EvaluationFailed(job.experiment, job.id, "was ended", job.reason)
    return None
