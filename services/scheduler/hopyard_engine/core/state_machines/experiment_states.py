"""The states of an experiment: the transition table, and the function that applies it.

`actions.experiment_state.enter` also updates everything that depends on the state.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from hopyard.policy.vocabulary import ExperimentId, ExperimentState
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.state_machines.transitions import Change, TransitionTable

_P = ExperimentState

EXPERIMENT: Final = TransitionTable(
    "experiment",
    _P.RUNNING,
    [
        ([_P.RUNNING], _P.RUNNING, "it is created"),
        (
            [_P.RUNNING],
            _P.PAUSING,
            "a person pauses it, its policy or generator fails, its first jobs fail alike, its code is lost, or its metric is missing",
        ),
        ([_P.PAUSING], _P.PAUSED, "its runs have left, and its snapshots are in the store"),
        ([_P.PAUSING, _P.PAUSED], _P.RUNNING, "a person resumes it"),
        (
            [_P.RUNNING, _P.PAUSING, _P.PAUSED],
            _P.ENDING,
            "it has nothing left to do, reached its target, ran out of time, failed, or a person or its policy ends it",
        ),
        ([_P.ENDING], _P.COMPLETED, "its runs have left, and its snapshots are in the store"),
        ([_P.ENDING], _P.STOPPED, "the same, after a person stopped it"),
        ([_P.ENDING], _P.FAILED, "the same, after it failed"),
        ([_P.RUNNING, _P.PAUSING, _P.PAUSED], _P.FAILED, "an error in the engine: the stream is quarantined"),
        ([_P.COMPLETED, _P.STOPPED, _P.FAILED], _P.RUNNING, "it is extended, or a person retries failed jobs"),
    ],
)


class HasExperimentState(Protocol):
    """The attributes of an experiment that `change_experiment` uses."""

    id: ExperimentId
    state: ExperimentState
    reason: Reason | None
    story: deque[object]


def change_experiment(experiment: HasExperimentState, state: ExperimentState, reason: Reason | None) -> None:
    """Change the state of an experiment, and record the reason and the change. Nothing else is updated (see `experiment_state.enter`).

    Raises:
        IllegalTransitionError: The table does not permit the change.
    """
    EXPERIMENT.check(experiment.id, experiment.state, state, reason or "", experiment.story)
    experiment.state = state
    experiment.reason = reason
    experiment.story.append(Change(state.value, reason or ""))
