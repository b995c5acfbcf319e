"""A stage tree as people look at it: what stage-tree policies show of themselves."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class StageState(enum.Enum):
    """Where a stage stands."""

    DONE = "done"
    RUNNING = "running"
    WAITING = "waiting"
    UNWANTED = "not wanted"


@dataclass(frozen=True, slots=True)
class StageView:
    """A range of positions that the same trials have in common, and that stands the same all along.

    Attributes:
        number: Its number, from 1; a parent's is smaller than its children's.
        parent: The number of the stage before it; None: it begins where training begins.
        start: Where it begins (exclusive): 0, or its parent's end.
        end: Where it ends.
        state: DONE: its results are there. RUNNING: a run trains it, or will pass it. WAITING: it is wanted, and no run is at it.
            UNWANTED: nobody wants it, so far or any more.
        trials: The trials that pass through it, in order of creation.
        ends: Those of them that are complete at its end.
        reused: How many trials have results of it that they did not train themselves.
        by: The trial whose run trained it, or does; empty: nobody's.
        machine: Where it is being trained; of one that is done, where `by` ran last. Empty: nowhere, or it is not known.
        seconds: What it took; of one that is not done, what it is expected to take. None: nothing is known of that yet.
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
    machine: str = ""
    seconds: float | None = None
    saved: bool = False
    reusing: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        """Units."""
        return self.end - self.start
