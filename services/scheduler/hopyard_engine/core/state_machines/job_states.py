"""The states of a job: the transition table, and the function that applies it.

A job that waits for a slot is SUSPENDED if it has a snapshot of its own to resume from, that is, not only that of another job, else
PENDING. After the loss of a run it is in either state, depending on the snapshots that remain.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from hopyard.policy.vocabulary import JobState
from hopyard.policy.vocabulary.reasons import Reason
from hopyard_engine.core.state_machines.transitions import Change, TransitionTable

_S = JobState
_WITH_RUN = (_S.STARTING, _S.RUNNING, _S.SUSPENDING)

JOB: Final = TransitionTable(
    "job",
    _S.CREATING,
    [
        ([_S.CREATING], _S.PENDING, "its configuration is known"),
        ([_S.PENDING, _S.SUSPENDED], _S.STARTING, "a run is placed on slots"),
        ([_S.STARTING], _S.RUNNING, "the process has loaded its state"),
        ([_S.STARTING, _S.RUNNING], _S.SUSPENDING, "the run is to leave, or has left with other processes still there"),
        (_WITH_RUN, _S.SUSPENDED, "the run ended, and a snapshot can be loaded"),
        (_WITH_RUN, _S.PENDING, "the run ended, and no snapshot can be loaded"),
        ([_S.SUSPENDED], _S.PENDING, "its last snapshot is lost"),
        ([_S.CREATING, _S.PENDING, _S.SUSPENDING, _S.SUSPENDED], _S.HELD, "it would wait, and a person has paused it"),
        ([_S.HELD], _S.SUSPENDED, "a person resumes it, and it has a snapshot"),
        ([_S.HELD], _S.PENDING, "a person resumes it, and it has no snapshot"),
        (_WITH_RUN, _S.COMPLETED, "the run has trained it to its end"),
        (
            [_S.PENDING, _S.SUSPENDED, _S.HELD],
            _S.COMPLETED,
            "other results answer it, it has reached the target, or the policy completes it",
        ),
        (
            [_S.CREATING, _S.PENDING, _S.SUSPENDING, _S.SUSPENDED, _S.HELD],
            _S.TERMINATED,
            "the policy or a person ends it, or its experiment ends",
        ),
        (
            [_S.PENDING, *_WITH_RUN, _S.SUSPENDED, _S.HELD],
            _S.FAILED,
            "it failed or was lost too often, or its origin is lost",
        ),
        ([_S.COMPLETED], _S.SUSPENDED, "the experiment is extended, and a snapshot can be loaded"),
        ([_S.COMPLETED], _S.PENDING, "the experiment is extended, and no snapshot can be loaded"),
        ([_S.FAILED], _S.SUSPENDED, "a person retries it, and a snapshot can be loaded"),
        ([_S.FAILED], _S.PENDING, "a person retries it, and no snapshot can be loaded"),
    ],
)


class HasJobState(Protocol):
    """The attributes of a job that `change_job` uses."""

    id: str
    state: JobState
    reason: Reason | None
    story: deque[object]


def change_job(job: HasJobState, state: JobState, why: Reason) -> None:
    """Change the state of a job, and record the reason `why` and the change. Nothing else is updated (see `Stream.move`).

    Raises:
        IllegalTransitionError: The table does not permit the change.
    """
    JOB.check(job.id, job.state, state, why, job.story)
    job.state = state
    job.reason = why
    job.story.append(Change(state.value, why))
