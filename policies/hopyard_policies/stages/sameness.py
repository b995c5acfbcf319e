"""How far the trainings of two configurations are the same."""

from __future__ import annotations

from typing import Protocol

from hopyard.policy.vocabulary import Hyperparameters
from hopyard.sequences import Sequence, as_sequence, common_prefix, is_written


class Sameness(Protocol):
    """Says how far two configurations train alike.

    The answer is symmetric, and of three configurations the two smallest answers are equal: so configurations form a tree.
    """

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """The largest position p in 0..until with the same state at p: all values in force at 0 .. p - 1 are equal."""
        ...


class BySequences:
    """Compares value by value: sequences as functions of the position, all else wholly. Remembers what it has read."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Hyperparameters, dict[str, Sequence]]] = {}

    def __call__(self, one: Hyperparameters, other: Hyperparameters, until: int) -> int:
        """See `Sameness`."""
        if one.keys() != other.keys():
            return 0
        differing = [name for name, value in one.items() if value is not other[name]]
        mine, theirs = self._sequences(one), self._sequences(other)
        for name in differing:
            if name not in mine and name not in theirs and not _equal(one[name], other[name]):
                return 0
        for name in differing:
            if until and (name in mine or name in theirs):
                first = mine.get(name) or as_sequence(one[name])
                second = theirs.get(name) or as_sequence(other[name])
                until = common_prefix(first, second, until)
        return until

    def _sequences(self, given: Hyperparameters) -> dict[str, Sequence]:
        known = self._read.get(id(given))
        if known is None or known[0] is not given:
            found = {name: as_sequence(value) for name, value in given.items() if is_written(value)}
            known = self._read[id(given)] = (given, found)
        return known[1]


def nothing_shared(one: Hyperparameters, other: Hyperparameters, until: int) -> int:
    """Every trial for itself."""
    return 0


def _equal(one: object, other: object) -> bool:
    """Whether two values are the same: true is not 1."""
    return one == other and isinstance(one, bool) is isinstance(other, bool)
