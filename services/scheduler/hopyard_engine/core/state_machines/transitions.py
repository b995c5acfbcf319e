"""Transition tables: the permitted state changes.

The core has five state machines: job (`job_states`), run (`run_states`), experiment (`experiment_states`), snapshot
(`snapshot_states`) and policy conversation (`core.state.policy_conversation`). Each has one table, which one module applies.
`docs/state-machines.md` is generated from the tables.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=enum.Enum)

STORY_LENGTH: Final = 12
"""Number of state changes that a job, run, experiment or conversation stores for error messages."""


class Change(NamedTuple):
    """A state change that happened, stored for error messages.

    Attributes:
        state: The new state.
        why: Reason of the change.
    """

    state: str
    why: object

    def __str__(self) -> str:
        """Return the new state, followed by the reason in parentheses."""
        return f"{self.state} ({self.why})"


class IllegalTransitionError(RuntimeError):
    """Raised if a state change is not in the transition table. The cause is always an error in the core, never in its input."""


class Transition(NamedTuple):
    """One permitted state change.

    Attributes:
        source: The state before.
        target: The state after.
        cause: What causes the change, as text.
    """

    source: enum.Enum
    target: enum.Enum
    cause: str


class TransitionTable(Generic[S]):
    """The permitted changes of one kind of state. Iteration gives them as `Transition`, in the order of the table.

    Args:
        subject: What has the state, for error messages, such as "job".
        initial: The initial state.
        rows: (source states, target state, cause). Each pair of source and target occurs once.

    Raises:
        ValueError: A pair of states occurs twice.
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
        """All states, in the order of their definition, whether or not the table has them."""
        return list(type(self.initial))

    def check(self, name: str, source: S, target: S, why: object, story: Iterable[object] = ()) -> None:
        """Raise an error unless the table permits a change.

        Args:
            name: Id of the job, run, experiment, snapshot or stream.
            source: The present state.
            target: The new state.
            why: Reason of the change.
            story: The last changes, oldest first.

        Raises:
            IllegalTransitionError: The table does not permit the change. The message contains all arguments.
        """
        if (source, target) not in self._causes:
            raise IllegalTransitionError(
                f"{self.subject} {name}: {source.name} -> {target.name} ({why}); story: {' -> '.join(map(str, story)) or 'none'}"
            )
