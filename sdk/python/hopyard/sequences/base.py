"""What a sequence is: values by position, and how far two sequences are equal."""

from __future__ import annotations

import functools
import hashlib
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple

from hopyard.sequences.functions import Function
from hopyard.sequences.rational import JsonValue, SequenceError, token


class Piece(NamedTuple):
    """One function from `start` up to `stop` (exclusive)."""

    start: int
    stop: int
    function: Function


class Sequence(ABC):
    """A hyperparameter's values over the training: immutable, pure, equal if written alike.

    A position is a count of the experiment's unit from 0. `value(p)` is in force while the unit p is trained, that is from
    the boundary p on. Values are computed from the decimal numbers as they are written, exactly, and rounded to a double
    once; whole ones are ints.
    """

    kind: ClassVar[str]
    """The key of the written form."""

    milestones_from_start: ClassVar[bool] = False
    """Whether its positions count from the start of the training, even behind a warm-up."""

    @abstractmethod
    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Where each function begins, rising, the first at `origin`, where this sequence's clock is 0.

        The last one goes on for ever; there may be endlessly many.
        """

    @abstractmethod
    def to_data(self) -> dict[str, JsonValue]:
        """The written form below `sequence`: `{exponential: {initial: 0.1, gamma: 0.95}}`."""

    @property
    def per_step(self) -> bool:
        """Whether its positions count optimizer steps, not the experiment's unit."""
        return False

    def written(self) -> dict[str, JsonValue]:
        """The written form as it stands in a configuration: `{sequence: ...}`."""
        return {"sequence": self.to_data()}

    def __eq__(self, other: object) -> bool:
        """Written alike, defaults filled in; see `common_prefix` for equality of the values."""
        return self._text == other._text if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        """Equal ones hash alike."""
        return hash(self._text)

    @functools.cached_property
    def _text(self) -> str:
        return str(token(self.written()))

    def pieces(self, stop: int) -> list[Piece]:
        """The functions up to the position `stop`, neighbours that are the same function merged."""
        found = list[Piece]()
        for start, function in clipped(self.spans(0), 0, stop):
            if found and found[-1].start == start:
                found.pop()
            elif found and found[-1].function.same(function):
                continue
            elif found:
                found[-1] = found[-1]._replace(stop=start)
            found.append(Piece(start, stop, function))
        return found

    def value(self, position: int) -> JsonValue:
        """What is in force while the unit `position` (0 or more) is trained.

        Raises:
            SequenceError: the position is negative, or the value too large for a double.
        """
        return Cursor(self).value(position)

    def next_change(self, position: int, stop: int) -> int:
        """The first position behind `position` and before `stop` with another value than the one before it; else `stop`."""
        return Cursor(self).next_change(position, stop)

    def prefix_key(self, position: int) -> str:
        """A text that two sequences share exactly if they have the same values at 0, 1, ..., position - 1."""
        digest = hashlib.sha256()
        run, held = 0, None
        for start, stop, function in self.pieces(position):
            for at in (start,) if function.constant else range(start, stop):
                found, length = token(function.value(at)), stop - start if function.constant else 1
                if run and found == held:
                    run += length
                    continue
                if run:
                    digest.update(f"{run}*{held!r};".encode())
                run, held = length, found
        digest.update(f"{run}*{held!r};".encode())
        return digest.hexdigest()


class Cursor:
    """A sequence that is asked at rising positions: it goes on from the last one; an earlier one is looked up from 0."""

    def __init__(self, sequence: Sequence) -> None:
        """Stand at 0."""
        self._sequence = sequence
        self._rewind()

    def value(self, position: int) -> JsonValue:
        """As `Sequence.value`."""
        self._go(position)
        return self._known[0][1].value(position)

    def next_change(self, position: int, stop: int) -> int:
        """As `Sequence.next_change`."""
        before = token(self.value(position))
        for index in itertools.count():
            start, function = self._known[index]
            end = self._known[index + 1][0] if self._reads(index + 1) else stop
            for at in range(max(start, position + 1), min(end, stop)):
                if token(function.value(at)) != before:
                    return at
                if function.constant:
                    break
            if end >= stop:
                break
        return stop

    def _rewind(self) -> None:
        self._rest = self._sequence.spans(0)
        self._known = deque([next(self._rest)])
        """The span that is in force, and those behind it that were read."""

    def _go(self, position: int) -> None:
        if position < 0:
            raise SequenceError(f"a position is 0 or more, found {position}")
        if position < self._known[0][0]:
            self._rewind()
        while self._reads(1) and self._known[1][0] <= position:
            self._known.popleft()

    def _reads(self, index: int) -> bool:
        """Whether there is a span number `index`, counted from the one in force; then it has been read."""
        while len(self._known) <= index:
            following = next(self._rest, None)
            if following is None:
                return False
            self._known.append(following)
        return True


def common_prefix(one: Sequence, other: Sequence, until: int) -> int:
    """The position up to which both have the same values: the largest p <= `until` with equal values at 0 ... p - 1.

    Pieces that are the same function are equal over their whole length; only where two different functions meet are
    positions compared, and those part after a few.
    """
    if one == other:
        return until
    if one.per_step != other.per_step or one.per_step:
        return 0  # how many steps a unit has is not known here
    mine, theirs = one.pieces(until), other.pieces(until)
    first = second = 0
    at = 0
    while at < until:
        stop = min(mine[first].stop, theirs[second].stop)
        f, g = mine[first].function, theirs[second].function
        if not f.same(g):
            for position in range(at, at + 1 if f.constant and g.constant else stop):
                if token(f.value(position)) != token(g.value(position)):
                    return position
        at = stop
        first += mine[first].stop == stop
        second += theirs[second].stop == stop
    return until


def clipped(
    spans: Iterable[tuple[int, Function]], begin: int, end: int | None = None
) -> Iterator[tuple[int, Function]]:
    """The spans that are in force from `begin` on and, with an end, before it; the first one starts at `begin`."""
    held: Function | None = None
    for start, function in spans:
        if end is not None and start >= end:
            break
        if start <= begin:
            held = function
            continue
        if held is not None:
            yield begin, held
            held = None
        yield start, function
    if held is not None:
        yield begin, held
