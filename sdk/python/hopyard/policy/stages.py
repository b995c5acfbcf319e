"""A stage tree, as stage-tree policies show it to users."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StageState(enum.Enum):
    """The state of a stage."""

    DONE = "done"
    RUNNING = "running"
    WAITING = "waiting"
    UNWANTED = "not wanted"


@dataclass(frozen=True, slots=True)
class StageView:
    """A range of positions that a set of trials shares and that has one state.

    Attributes:
        number: Its number, starting with 1. A parent has a smaller number than its children.
        parent: Number of the previous stage; None: the stage begins where training begins.
        start: Its start (exclusive): 0, or its parent's end.
        end: Its end.
        state: DONE: its results exist. RUNNING: a run trains it or will train it. WAITING: it is needed, but no run
            trains it. UNWANTED: no trial needs it, either not yet or no longer.
        trials: The trials that pass through it, in order of creation.
        ends: Those of them that are complete at its end.
        reused: Number of trials that have its results without having trained it.
        by: The trial whose run trained it or trains it; empty: none.
        slot: The slot that trains it. For a completed stage, the slot of the last run of `by`. Empty: none or
            unknown.
        seconds: Its training time, measured if it is completed, else expected. None: unknown.
        saved: Whether its end is saved, so that others can start there.
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
        """Number of units."""
        return self.end - self.start
