"""Compares configurations: computes up to which position the training of two configurations is the same."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Protocol

from hopyard.policy.vocabulary import Hyperparameters
from hopyard.sequences import Sequence, as_sequence, common_prefix, is_written
from hopyard.sequences.rational import token


class PrefixEquality(Protocol):
    """Computes up to which position the training of two configurations is the same.

    The result is symmetric. For three configurations, the two smallest of the three pairwise results are equal, so configurations
    form a tree of common prefixes.
    """

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """Return the largest position in 0..until up to which two configurations train the same.

        For the result p, the hyperparameter values used at the positions 0..p-1 are equal, so the states at p are equal.

        Args:
            one: A configuration.
            other: Another configuration.
            until: The last position that is compared.
        """
        ...

    def head(self, given: Hyperparameters, position: int) -> Hashable:
        """Return a key for the hyperparameter values that a configuration uses at a position.

        Two configurations that train the same beyond the position have equal keys.

        Args:
            given: The configuration.
            position: The position.
        """
        ...


class BySequences:
    """Compares configurations value by value: sequences as functions of the position, other values as a whole.

    Parsed values are cached.
    """

    def __init__(self) -> None:
        self._read: dict[int, tuple[Hyperparameters, dict[str, Sequence]]] = {}
        self._known: dict[str, Sequence] = {}
        # By id of a sequence; the ids remain valid, because `_known` refers to the sequences.
        self._values: dict[int, dict[int, Hashable]] = {}

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """Return the largest position in 0..until up to which two configurations train the same; see `PrefixEquality`."""
        mine, theirs = self._sequences(one), self._sequences(other)
        if mine.keys() != theirs.keys():
            return 0
        for name, sequence in mine.items():
            if until and sequence is not theirs[name]:
                until = common_prefix(sequence, theirs[name], until)
        return until

    def head(self, given: Hyperparameters, position: int) -> Hashable:
        """Return a key for the hyperparameter values used at a position; see `PrefixEquality`."""
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
        """Yield the names and sequences of all values, including those in groups. Equal values are the same sequence object.

        Args:
            given: A configuration, or a group of values within it.
            group: The prefix of the names: the names of the enclosing groups, each followed by a dot.
        """
        for name in sorted(given):
            value = given[name]
            if isinstance(value, Mapping) and not is_written(value):
                yield from self._flat(value, f"{group}{name}.")
            else:
                text = f"{type(value).__name__} {json.dumps(value, sort_keys=True)}"
                if text not in self._known:
                    self._known[text] = as_sequence(value)
                yield f"{group}{name}", self._known[text]


class NoSharing:
    """A `PrefixEquality` by which no two trials share training, except that a fork shares its parent's up to the fork.

    Only identical configuration objects are the same; a fork refers to its parent's object.
    """

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """Return 0: no training is shared. The search plan calls this only for two different configuration objects."""
        return 0

    def head(self, given: Hyperparameters, position: int) -> Hashable:
        """Return the identity of the configuration object."""
        return id(given)
