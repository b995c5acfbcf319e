"""The legal changes of a job's state, in one table, and the one place that applies them.

    CREATING --> PENDING --> STARTING --> RUNNING --> SUSPENDING --> SUSPENDED --> STARTING ...
                                                                                    |
    any state that is not an end --> COMPLETED | TERMINATED | FAILED   (see the table for which)

PENDING, SUSPENDED, and what a run ends in <--> HELD, while a person has paused the job.

A job is PENDING when it waits without any state of its own, SUSPENDED when it waits with a snapshot. A lost run therefore
leads to either, depending on what can still be loaded; a SUSPENDED job whose last snapshot is lost becomes PENDING.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopyard.policy.vocabulary import JobState

if TYPE_CHECKING:
    from hopyard_engine.core.state.entities import Job

_S = JobState

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    _S.CREATING: frozenset({_S.PENDING, _S.HELD, _S.COMPLETED, _S.TERMINATED, _S.FAILED}),
    _S.PENDING: frozenset({_S.STARTING, _S.HELD, _S.COMPLETED, _S.TERMINATED, _S.FAILED}),
    _S.STARTING: frozenset(
        {_S.RUNNING, _S.SUSPENDING, _S.SUSPENDED, _S.PENDING, _S.HELD, _S.COMPLETED, _S.TERMINATED, _S.FAILED}
    ),
    _S.RUNNING: frozenset({_S.SUSPENDING, _S.SUSPENDED, _S.PENDING, _S.HELD, _S.COMPLETED, _S.TERMINATED, _S.FAILED}),
    _S.SUSPENDING: frozenset({_S.SUSPENDED, _S.PENDING, _S.HELD, _S.COMPLETED, _S.TERMINATED, _S.FAILED}),
    _S.SUSPENDED: frozenset({_S.STARTING, _S.PENDING, _S.HELD, _S.COMPLETED, _S.TERMINATED, _S.FAILED}),
    _S.HELD: frozenset({_S.PENDING, _S.SUSPENDED, _S.COMPLETED, _S.TERMINATED, _S.FAILED}),
    _S.COMPLETED: frozenset({_S.SUSPENDED, _S.PENDING}),  # only when the experiment is extended
    _S.TERMINATED: frozenset(),
    _S.FAILED: frozenset(),
}


class IllegalTransitionError(RuntimeError):
    """A state change that the table does not allow: a mistake in the core, never in its input."""


def change_state(job: Job, state: JobState, why: str) -> None:
    """Moves a job to a state and remembers why.

    Raises:
        IllegalTransitionError: Names the job, both states and its recent story.
    """
    if state not in TRANSITIONS[job.state]:
        story = " -> ".join(job.story)
        raise IllegalTransitionError(f"job {job.id}: {job.state.value} -> {state.value} ({why}); story: {story}")
    job.state = state
    job.reason = why
    job.story.append(f"{state.value} ({why})")
