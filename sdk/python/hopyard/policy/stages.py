"""The stages of a stage tree, as `Policy.stages` returns them for users.

A stage tree divides the trainings of trials into ranges of positions (stages), so that trials with equal beginnings
share their training.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StageState(enum.Enum):
    """The state of a stage, a range of positions whose training several trials share.

    DONE: its results exist. RUNNING: a run trains it or will train it. WAITING: it is needed, but no run trains it.
    UNWANTED: no trial needs it, either not yet or no longer.
    """

    DONE = "done"
    RUNNING = "running"
    WAITING = "waiting"
    UNWANTED = "not wanted"


@dataclass(frozen=True, slots=True)
class StageView:
    """One stage of a stage tree: a range of positions whose training a set of trials shares.

    Attributes:
        number: The number of the stage, starting with 1. A parent has a smaller number than its children.
        parent: Number of the previous stage; None: the stage begins at position 0.
        start: Start of the range (exclusive): 0, or the parent's end.
        end: End of the range (inclusive).
        state: DONE: its results exist. RUNNING: a run trains it or will train it. WAITING: it is needed, but no run
            trains it. UNWANTED: no trial needs it, either not yet or no longer.
        trials: The ids of the trials whose training contains the stage, in order of creation.
        ends: Those of `trials` that are complete at the end of the stage.
        reused: Number of trials that have the results of the stage without having trained it.
        by: The trial whose run trained it or trains it; empty: none.
        slot: The slot that trains it. For a completed stage, the slot of the last run of `by`. Empty: none or unknown.
        seconds: Its training time in seconds: measured if the stage is DONE, else estimated by the policy. None: unknown.
        saved: Whether there is a snapshot at its end, from which other trials can start.
        reusing: The trials that `reused` counts.
    """

    number: int
    parent: int | None
    start: int
    end: int
    state: StageState
    trials: tuple[str, ...]
    ends: tuple[str, ...] = ()
    reused: int = 0
    by: str = ""
    slot: str = ""
    seconds: float | None = None
    saved: bool = False
    reusing: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        """The number of positions in the range."""
        return self.end - self.start
