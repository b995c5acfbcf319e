"""The prefix tree of a set of configurations, which contains common beginnings of their training only once."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hopyard.sequences.base import Sequence, common_prefix
from hopyard.sequences.parse import as_sequence, is_written
from hopyard.sequences.rational import SequenceError, token


class Request(NamedTuple):
    """A request to train a configuration up to a position.

    Attributes:
        configuration: JSON values and sequences in written form by name, with nested groups.
        length: The position at which the training ends, 1 or more.
        root: All other inputs of the training (program, data, seed). Only requests with equal roots share training.
    """

    configuration: Mapping[str, Any]
    length: int
    root: Hashable = None


@dataclass
class Branch:
    """A range of positions that the same requests share, with the branches that continue from its end.

    Attributes:
        start: The first position of the range.
        stop: The end of the range (exclusive), where one of the requests ends or differs from the others.
        requests: Numbers of the requests that share the complete range, in the order in which they were added.
        after: The branches that start at `stop`.
    """

    start: int
    stop: int
    requests: list[int]
    after: list[Branch] = field(default_factory=list)

    def all(self) -> Iterator[Branch]:
        """Yield this branch and all branches that continue from it, each before those that continue from it."""
        open_ = [self]
        while open_:
            branch = open_.pop()
            yield branch
            open_.extend(reversed(branch.after))


class PrefixTree:
    """A tree of requests, in which two requests share training up to the first position where their values differ.

    Values are compared position by position; written forms and values at later positions do not matter. Two requests share
    nothing if their roots differ, or if one configuration lacks a hyperparameter of the other.

    Args:
        requests: The first requests of the tree, which get the numbers 0, 1, ... in order; empty: the tree has no request until
            `add` is called.

    Attributes:
        roots: The branches that start at position 0.

    Raises:
        SequenceError: A request has a length less than 1 or an invalid sequence.
    """

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        self.roots: list[Branch] = []
        self._requests: list[tuple[_Values, int]] = []
        self._common = dict[tuple[Sequence, Sequence, int], int]()
        self._read = dict[str, Sequence]()
        self._beginnings = dict[Hashable, Branch]()
        self._following = dict[tuple[int, Hashable], Branch]()
        for request in requests:
            self.add(request)

    @property
    def requests(self) -> int:
        """The number of requests in the tree."""
        return len(self._requests)

    @property
    def total(self) -> int:
        """The number of positions to train if no request shares training with another."""
        return sum(length for _, length in self._requests)

    @property
    def unique(self) -> int:
        """The number of positions to train if each shared range is trained once: the sum of the lengths of all branches."""
        return sum(branch.stop - branch.start for root in self.roots for branch in root.all())

    @property
    def critical_path(self) -> int:
        """The number of positions of the longest request in the tree, which must be trained one after another; 0: no requests."""
        return max((length for _, length in self._requests), default=0)

    def makespan_lower_bound(self, slots: int) -> int:
        """Return a lower bound of the time to train the tree, where a slot trains one position per time unit.

        No request can train beyond position p in the first p time units. Therefore, for every p, the time is at least p plus
        the number of units after position p in the whole tree, divided by the number of slots and rounded up. The result is the
        largest of these bounds. Hu's algorithm reaches it if moving a job costs nothing.

        Args:
            slots: The number of slots, 1 or more.

        Raises:
            SequenceError: `slots` is less than 1.
        """
        if slots < 1:
            raise SequenceError(f"needs at least one slot, found {slots}")
        changes = dict[int, int]()
        for root in self.roots:
            for branch in root.all():
                changes[branch.start] = changes.get(branch.start, 0) + 1
                changes[branch.stop] = changes.get(branch.stop, 0) - 1
        best, behind, width, last = 0, 0, 0, self.critical_path
        for position in sorted(changes, reverse=True):
            # Between two changes the bound is linear in p, so its maximum is at one of the changes.
            behind += width * (last - position)
            width -= changes[position]
            last = position
            best = max(best, position + -(-behind // slots))
        return best

    def add(self, request: Request) -> int:
        """Add a request, and return its number, counted from 0.

        Raises:
            SequenceError: Its length is less than 1, or one of its sequences is invalid.
        """
        if request.length < 1:
            raise SequenceError(f"a request's length is 1 or more, found {request.length}")
        values = dict(self._flat(request.configuration, ""))
        number = len(self._requests)
        self._requests.append((values, request.length))
        beginning = (request.root, tuple(values), _at(values, 0))
        branch = self._beginnings.get(beginning)
        if branch is None:
            self._beginnings[beginning] = branch = Branch(0, request.length, [number])
            self.roots.append(branch)
            return number
        while True:
            end = min(branch.stop, request.length)
            parting = self._parting(values, self._requests[branch.requests[0]][0], branch.start + 1, end)
            if parting < branch.stop:
                self._split(branch, parting)
            branch.requests.append(number)
            if parting == request.length:
                return number
            key = (id(branch), _at(values, parting))
            following = self._following.get(key)
            if following is None:
                self._follow(branch, key, Branch(parting, request.length, [number]))
                return number
            branch = following

    def _flat(self, configuration: Mapping[str, Any], group: str) -> Iterator[tuple[str, Sequence]]:
        for name in sorted(configuration):
            value = configuration[name]
            if isinstance(value, Mapping) and not is_written(value):
                yield from self._flat(value, f"{group}{name}.")
                continue
            text = (
                json.dumps(value, sort_keys=True) if isinstance(value, Mapping) else f"{type(value).__name__} {value!r}"
            )
            if text not in self._read:
                self._read[text] = as_sequence(value)
            yield f"{group}{name}", self._read[text]

    def _parting(self, one: _Values, other: _Values, least: int, until: int) -> int:
        """Return the first position at which two configurations have different values, at most `until`.

        Args:
            one: The sequences of one configuration by name.
            other: The sequences of the other configuration by name.
            least: A position before which the values are known to be equal; the result is not smaller.
            until: The maximum result.
        """
        for name, sequence in one.items():
            if sequence is other[name]:
                continue
            key = (sequence, other[name], until)
            if key not in self._common:
                self._common[key] = common_prefix(*key)
            until = max(least, min(until, self._common[key]))
        return until

    def _split(self, branch: Branch, position: int) -> None:
        rest = Branch(position, branch.stop, list(branch.requests), branch.after)
        for child in rest.after:
            key = (id(branch), _at(self._requests[child.requests[0]][0], child.start))
            self._following[id(rest), key[1]] = self._following.pop(key)
        branch.stop, branch.after = position, []
        self._follow(branch, (id(branch), _at(self._requests[rest.requests[0]][0], position)), rest)

    def _follow(self, branch: Branch, key: tuple[int, Hashable], following: Branch) -> None:
        branch.after.append(following)
        self._following[key] = following


_Values = dict[str, Sequence]


def _at(values: _Values, position: int) -> Hashable:
    """Return a key of the hyperparameter values that are in force while the unit `position` is trained.

    Two configurations that share all training before `position` also share this unit exactly if their keys are equal. The
    number of optimizer steps in a unit is not known, so sequences that count steps are compared by their written form.
    """
    return tuple(
        str(sequence.written()) if sequence.per_step else token(sequence.value(position))
        for sequence in values.values()
    )
