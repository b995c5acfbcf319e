"""The states of a run: the transition table, and the functions that apply it."""

from __future__ import annotations

import enum
from collections import deque
from typing import Final, Protocol

from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.state_machines.transitions import Change, TransitionTable


class RunState(enum.Enum):
    """The state of a run. Rank 0 reports for all ranks.

    STARTING: its processes load their state. RUNNING: it trains, evaluates or profiles. PARKED: it waits at its `until` for a
    decision, with its state in memory. LEAVING: it has ended, and its processes leave their slots.
    """

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PARKED = "PARKED"
    LEAVING = "LEAVING"


_S = RunState

RUN: Final = TransitionTable(
    "run",
    _S.STARTING,
    [
        ([_S.STARTING], _S.RUNNING, "rank 0 has loaded its state"),
        ([_S.STARTING, _S.RUNNING], _S.PARKED, "rank 0 reports that it waits at `until`"),
        ([_S.PARKED], _S.RUNNING, "an amendment moves `until`, or rank 0 reports beyond it"),
        ([_S.STARTING, _S.RUNNING, _S.PARKED], _S.LEAVING, "rank 0 has ended, or another rank is lost or has failed"),
    ],
)


class HasRunState(Protocol):
    """The attributes of a run that `change_run` and `report_parked` use."""

    job: str
    attempt: int
    state: RunState
    story: deque[object]


def change_run(run: HasRunState, state: RunState, why: Reason) -> None:
    """Change the state of a run, and record the change with the reason `why`. Does nothing if the run is already in that state.

    Raises:
        IllegalTransitionError: The table does not permit the change.
    """
    if run.state is not state:
        RUN.check(f"{run.job}.{run.attempt}", run.state, state, why, run.story)
        run.state = state
        run.story.append(Change(state.value, why))


def report_parked(run: HasRunState, parked: bool) -> None:
    """Make a run PARKED or RUNNING, as rank 0 reports it. A run that is LEAVING does not change.

    Args:
        run: The run.
        parked: Whether the run waits at `until`.

    Raises:
        IllegalTransitionError: The table does not permit the change.
    """
    if run.state is not RunState.LEAVING:
        change_run(run, RunState.PARKED if parked else RunState.RUNNING, Reason(ReasonCode.RANK_0_REPORTED))
