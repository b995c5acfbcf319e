"""Symbols, colors and words of the states and ends of jobs, for the live view, tables, plots and notebooks.

The symbols alone identify a state. The colors (Okabe and Ito) can be distinguished by color-blind readers. Only failures have a cross
and the color red.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hopyard.policy.vocabulary import JobState
from hopyard.policy.vocabulary.reasons import ReasonCode


@dataclass(frozen=True, slots=True)
class JobLook:
    """How a job is shown.

    Attributes:
        symbol: One character.
        ascii: One ASCII character, for terminals without Unicode.
        color: An RGB color as #rrggbb; empty: the color of the text around.
        word: The displayed name of the state or end.
        rank: Position in lists of states, ascending from 0.
        style: A rich style for terminals.
    """

    symbol: str
    ascii: str
    color: str
    word: str
    rank: int
    style: str


SKY: Final = "#56b4e9"
GREEN: Final = "#009e73"
VERMILION: Final = "#d55e00"
PURPLE: Final = "#cc79a7"
GREY: Final = "#7f7f7f"

LOOKS: Final = {
    JobState.RUNNING: JobLook("▶", ">", SKY, "running", 0, SKY),
    JobState.STARTING: JobLook("▷", ")", SKY, "starting", 1, SKY),
    # The job may also be completed or terminated when it leaves its slot.
    JobState.SUSPENDING: JobLook("◧", "]", PURPLE, "leaving", 2, PURPLE),
    JobState.FAILED: JobLook("✗", "x", VERMILION, "failed", 3, f"bold {VERMILION}"),
    JobState.SUSPENDED: JobLook("‖", "=", PURPLE, "suspended", 4, PURPLE),
    JobState.HELD: JobLook("◫", "H", PURPLE, "held", 5, PURPLE),
    JobState.COMPLETED: JobLook("✓", "+", GREEN, "completed", 6, GREEN),
    JobState.PENDING: JobLook("○", "o", "", "pending", 8, "default"),
    JobState.CREATING: JobLook("·", ".", GREY, "creating", 9, "dim"),
    JobState.TERMINATED: JobLook("■", "t", GREY, "terminated", 10, "dim"),
}
"""The look of each state. `look_of` distinguishes the ends of a job that is TERMINATED."""

STOPPED: Final = JobLook("□", "s", GREY, "stopped", 7, "default")
"""The look of a job that its experiment left: on a rung, or because another job reached the target, or because of its end."""

NOT_STARTED: Final = JobLook("◌", "n", GREY, "not started", 11, "dim")
"""The look of a job whose experiment ended before the job got a slot."""

_ENDS: Final = {
    ReasonCode.STOPPED_AT_RUNG: STOPPED,
    ReasonCode.STOPPED_BY_TARGET: STOPPED,
    ReasonCode.STOPPED_WITH_EXPERIMENT: STOPPED,
    ReasonCode.NOT_STARTED: NOT_STARTED,
}


def look_of(state: JobState, code: ReasonCode | None) -> JobLook:
    """Return the look of a job.

    Args:
        state: The job's state.
        code: The code of the state's reason; None: there is no reason.
    """
    end = _ENDS.get(code) if state is JobState.TERMINATED and code is not None else None
    return end or LOOKS[state]
