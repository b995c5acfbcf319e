"""The tree of a set of configurations: what several have in common from the beginning is in it once."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hopyard.sequences.base import Sequence, common_prefix
from hopyard.sequences.parse import as_sequence, is_written
from hopyard.sequences.rational import SequenceError, token


class Request(NamedTuple):
    """A configuration that is wanted up to a position.

    Attributes:
        configuration: JSON values and written sequences by name, groups nested.
        length: the position, 1 or more.
        root: what else decides about the training (program, data, seed): only equal roots share anything.
    """

    configuration: Mapping[str, Any]
    length: int
    root: Hashable = None


@dataclass
class Branch:
    """Positions that the same requests go through.

    Attributes:
        start: where it begins.
        stop: where it ends, exclusive: where requests part, or the last one ends.
        requests: the numbers of those that go through it to its end.
        after: what follows.
    """

    start: int
    stop: int
    requests: list[int]
    after: list[Branch] = field(default_factory=list)

    def all(self) -> Iterator[Branch]:
        """It and all that follow, a branch before what follows it."""
        open_ = [self]
        while open_:
            branch = open_.pop()
            yield branch
            open_.extend(reversed(branch.after))


class PrefixTree:
    """Requests, put together as far as their configurations have the same values at all positions so far.

    Equal values count, however they are written and whatever follows. Names are part of a configuration: where one of two
    lacks a name, they share nothing.
    """

    def __init__(self, requests: Iterable[Request] = ()) -> None:
        """Add `requests` in order."""
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
        """How many there are."""
        return len(self._requests)

    @property
    def total(self) -> int:
        """Positions of all requests together, each trained alone."""
        return sum(length for _, length in self._requests)

    @property
    def unique(self) -> int:
        """Positions of the tree: what must be trained when nothing is trained twice."""
        return sum(branch.stop - branch.start for root in self.roots for branch in root.all())

    @property
    def critical_path(self) -> int:
        """The most positions that must be trained one after the other."""
        return max((length for _, length in self._requests), default=0)

    def makespan_lower_bound(self, machines: int) -> int:
        """Units of time, in which a machine trains one position, that `machines` (1 or more) need at the least.

        Before position p nothing behind it can begin, so p and all positions behind it, spread over the machines, are a
        bound; the largest over all p is reached by Hu's rule where moving costs nothing.
        """
        if machines < 1:
            raise SequenceError(f"needs at least one machine, found {machines}")
        changes = dict[int, int]()
        for root in self.roots:
            for branch in root.all():
                changes[branch.start] = changes.get(branch.start, 0) + 1
                changes[branch.stop] = changes.get(branch.stop, 0) - 1
        best, behind, width, last = 0, 0, 0, self.critical_path
        for position in sorted(changes, reverse=True):
            # Between two changes the bound is a line in p, so that it is largest at one of them.
            behind += width * (last - position)
            width -= changes[position]
            last = position
            best = max(best, position + -(-behind // machines))
        return best

    def add(self, request: Request) -> int:
        """Add a request; returns its number.

        Raises:
            SequenceError: its length is below 1, or a sequence in it is wrong.
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
        """Up to where, at most `until`, both have the same values; `least` is known."""
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
    """What decides, among configurations that are equal so far, which go on together.

    How many optimizer steps a unit has is not known: what counts these is equal only where it is written alike.
    """
    return tuple(
        str(sequence.written()) if sequence.per_step else token(sequence.value(position))
        for sequence in values.values()
    )
