"""Tables of permitted state changes.

The core has five state machines: job (`job_states`), run (`run_states`), experiment (`experiment_states`), snapshot
(`snapshot_states`) and policy conversation (`core.state.policy_conversation`). Each has one table and one function that applies it.
`docs/state-machines.md` is generated from the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=enum.Enum)

STORY_LENGTH: Final = 12
"""Changes that a job, a run, an experiment or a conversation remembers for messages."""


class Change(NamedTuple):
    """A change that happened, for messages."""

    state: str
    why: object

    def __str__(self) -> str:
        """Return the state and why it was entered."""
        return f"{self.state} ({self.why})"


class IllegalTransitionError(RuntimeError):
    """A state change that the table does not permit. It is an error in the core, never in its input."""


class Transition(NamedTuple):
    """One row of a table: from `source` to `target`, and the cause in words."""

    source: enum.Enum
    target: enum.Enum
    cause: str


class TransitionTable(Generic[S]):
    """The permitted changes of one kind of state.

    Args:
        subject: What has the state, as messages name it: "job".
        initial: The first state.
        rows: The states to leave, the state to enter, and the cause. Each pair of states occurs once.
    """

    def __init__(self, subject: str, initial: S, rows: Iterable[tuple[Iterable[S], S, str]]) -> None:
        self.subject = subject
        self.initial = initial
        self._causes: dict[tuple[S, S], str] = {}
        for sources, target, cause in rows:
            for source in sources:
                if (source, target) in self._causes:
                    raise ValueError(f"{subject}: {source.name} -> {target.name} occurs twice")
                self._causes[source, target] = cause

    def __iter__(self) -> Iterator[Transition]:
        return (Transition(source, target, cause) for (source, target), cause in self._causes.items())

    @property
    def states(self) -> list[S]:
        """All states, in the order of their definition."""
        return list(type(self.initial))

    def check(self, name: str, source: S, target: S, why: object, story: Iterable[object] = ()) -> None:
        """Refuses a change that is not in the table.

        Args:
            name: The job, run, experiment or snapshot.
            source: Its state.
            target: The state that it is to enter.
            why: The reason for the change.
            story: Its recent changes, oldest first.

        Raises:
            IllegalTransitionError: Names all of these.
        """
        if (source, target) not in self._causes:
            raise IllegalTransitionError(
                f"{self.subject} {name}: {source.name} -> {target.name} ({why}); story: {' -> '.join(map(str, story)) or 'none'}"
            )
