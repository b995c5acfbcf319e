"""How far the trainings of two configurations are the same."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Protocol

from hopyard.policy.vocabulary import Hyperparameters
from hopyard.sequences import Sequence, as_sequence, common_prefix, is_written
from hopyard.sequences.rational import token


class Sameness(Protocol):
    """Says how far two configurations train alike.

    The answer is symmetric, and of three configurations the two smallest answers are equal: so configurations form a tree.
    """

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """The largest position p in 0..until with the same state at p: all values in force at 0 .. p - 1 are equal."""
        ...

    def head(self, given: Hyperparameters, position: int) -> Hashable:
        """What is in force at a position: configurations that are the same beyond it have equal ones."""
        ...


class BySequences:
    """Compares value by value: sequences as functions of the position, all else wholly. Remembers what it has read."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Hyperparameters, dict[str, Sequence]]] = {}
        self._known: dict[str, Sequence] = {}
        self._values: dict[int, dict[int, Hashable]] = {}  # Of the sequences in `_known`, which live as long.

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """See `Sameness`."""
        mine, theirs = self._sequences(one), self._sequences(other)
        if mine.keys() != theirs.keys():
            return 0
        for name, sequence in mine.items():
            if until and sequence is not theirs[name]:
                until = common_prefix(sequence, theirs[name], until)
        return until

    def head(self, given: Hyperparameters, position: int) -> Hashable:
        """See `Sameness`."""
        return tuple((name, self._value(sequence, position)) for name, sequence in self._sequences(given).items())

    def _value(self, sequence: Sequence, position: int) -> Hashable:
        if sequence.per_step:  # How many steps a unit has is not known here.
            return sequence
        known = self._values.setdefault(id(sequence), {})
        if position not in known:
            known[position] = token(sequence.value(position))
        return known[position]

    def _sequences(self, given: Hyperparameters) -> dict[str, Sequence]:
        known = self._read.get(id(given))
        if known is None or known[0] is not given:
            known = self._read[id(given)] = (given, dict(self._flat(given, "")))
        return known[1]

    def _flat(self, given: Hyperparameters, group: str) -> Iterator[tuple[str, Sequence]]:
        """All values as sequences, those in groups, too; equal ones are the same object."""
        for name in sorted(given):
            value = given[name]
            if isinstance(value, Mapping) and not is_written(value):
                yield from self._flat(value, f"{group}{name}.")
            else:
                text = f"{type(value).__name__} {json.dumps(value, sort_keys=True)}"
                if text not in self._known:
                    self._known[text] = as_sequence(value)
                yield f"{group}{name}", self._known[text]


class NothingShared:
    """Every trial for itself; copies begin as the one that they were made of, with the very same configuration."""

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """See `Sameness`."""
        return 0

    def head(self, given: Hyperparameters, position: int) -> Hashable:
        """See `Sameness`."""
        return id(given)
