"""Compares configurations: up to which position their training is the same."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Protocol

from hopyard.policy.vocabulary import Hyperparameters
from hopyard.sequences import Sequence, as_sequence, common_prefix, is_written
from hopyard.sequences.rational import token


class Sameness(Protocol):
    """Computes up to which position the training of two configurations is the same.

    The result is symmetric, and for three configurations the two smallest results are equal, so configurations form a
    tree.
    """

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """Return the largest position p in 0..until with equal state at p: all values in force at 0..p-1 are equal."""
        ...

    def head(self, given: Hyperparameters, position: int) -> Hashable:
        """Return a key for the values in force at a position; configurations that are the same beyond it have equal keys."""
        ...


class BySequences:
    """Compares value by value: sequences as functions of the position, other values as a whole. Caches parsed values."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Hyperparameters, dict[str, Sequence]]] = {}
        self._known: dict[str, Sequence] = {}
        # The sequences in `_known` live as long, so their ids stay valid.
        self._values: dict[int, dict[int, Hashable]] = {}

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
        if sequence.per_step:  # The number of steps in a unit is unknown here.
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
        """Yield all values, including those in groups, as sequences; equal values are the same object."""
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
    """Shares nothing: only identical configuration objects are the same, so that forks begin like their parents."""

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """See `Sameness`."""
        return 0

    def head(self, given: Hyperparameters, position: int) -> Hashable:
        """See `Sameness`."""
        return id(given)
