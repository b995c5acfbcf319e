"""Styles of experiment states, the looks of jobs (`hopyard.client.display.job_looks`), and escapes of control characters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from hopyard._common.formatting import printable
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


@dataclass(frozen=True, slots=True)
class Escaped:
    """Shows a renderable with the control characters in its texts replaced by hexadecimal escapes, except line breaks and tabs.

    Texts of agents and policies, such as the name of a node, must not move the cursor of a terminal or set its colours. Colours and
    styles of the renderable itself are kept.

    Attributes:
        renderable: The renderable.
    """

    renderable: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the segments of the renderable with escaped texts."""
        for segment in console.render(self.renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)
