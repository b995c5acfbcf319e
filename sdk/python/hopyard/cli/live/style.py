"""Styles of experiment states in the terminal, and the looks of jobs (`hopyard.client.display.job_looks`)."""

from __future__ import annotations

from typing import Final

from hopyard.client.display.job_looks import GREEN, LOOKS, PURPLE, SKY, VERMILION, JobLook, look_of
from hopyard.client.types import ExperimentState, Job

BEST: Final = "bold #e69f00"
WARNING: Final = VERMILION
JOB: Final = LOOKS


def of(job: Job) -> JobLook:
    """Return the look of a job, which also distinguishes why it ended."""
    return look_of(job.state, job.reason_code)


EXPERIMENT: Final = {
    ExperimentState.RUNNING: f"bold {SKY}",
    ExperimentState.INTERRUPTED: f"bold {PURPLE}",
    ExperimentState.PAUSING: f"bold {PURPLE}",
    ExperimentState.PAUSED: f"bold {PURPLE}",
    ExperimentState.ENDING: "bold",
    ExperimentState.COMPLETED: f"bold {GREEN}",
    ExperimentState.STOPPED: "bold",
    ExperimentState.FAILED: f"bold {VERMILION}",
}
