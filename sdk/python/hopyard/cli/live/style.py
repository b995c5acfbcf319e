"""Symbols and colors of job and experiment states.

The symbols alone identify a state. The colors (Okabe and Ito) can be distinguished by color-blind readers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hopyard.client.types import ExperimentState, JobState


@dataclass(frozen=True, slots=True)
class StateStyle:
    """How a job state is shown.

    Attributes:
        symbol: One character.
        ascii: One ASCII character, for terminals without Unicode.
        style: A rich style.
        rank: Position of the state in lists of states, ascending from 0.
    """

    symbol: str
    ascii: str
    style: str
    rank: int


_ORANGE: Final = "#E69F00"
_SKY: Final = "#56B4E9"
_GREEN: Final = "#009E73"
_VERMILION: Final = "#D55E00"
_PURPLE: Final = "#CC79A7"
BEST: Final = f"bold {_ORANGE}"

JOB: Final = {
    JobState.RUNNING: StateStyle("▶", ">", _SKY, 0),
    JobState.STARTING: StateStyle("▷", ")", _SKY, 1),
    JobState.SUSPENDING: StateStyle("◧", "]", _PURPLE, 2),
    JobState.FAILED: StateStyle("!", "!", f"bold {_VERMILION}", 3),
    JobState.SUSPENDED: StateStyle("‖", "=", _PURPLE, 4),
    JobState.HELD: StateStyle("◫", "H", _PURPLE, 5),
    JobState.COMPLETED: StateStyle("✓", "+", _GREEN, 6),
    JobState.PENDING: StateStyle("○", "o", "default", 7),
    JobState.CREATING: StateStyle("·", ".", "dim", 8),
    JobState.TERMINATED: StateStyle("✗", "x", "dim", 9),
}


def word(state: str) -> str:
    """Return the displayed name of a job's state.

    SUSPENDING is shown as "leaving", since the job may also be completed or terminated when it leaves its slot.
    """
    return "leaving" if state == JobState.SUSPENDING.value else state.lower()


EXPERIMENT: Final = {
    ExperimentState.RUNNING: f"bold {_SKY}",
    ExperimentState.INTERRUPTED: f"bold {_PURPLE}",
    ExperimentState.PAUSING: f"bold {_PURPLE}",
    ExperimentState.PAUSED: f"bold {_PURPLE}",
    ExperimentState.ENDING: "bold",
    ExperimentState.COMPLETED: f"bold {_GREEN}",
    ExperimentState.STOPPED: "bold",
    ExperimentState.FAILED: f"bold {_VERMILION}",
}

WARNING: Final = _VERMILION
