"""The base class of sequences, and the comparison of two sequences.

A span is a pair: a position, and the function that gives the values from that position to the next span. A sequence is a list of spans.
"""

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
    """A function of the position with the range in which a sequence uses it.

    Attributes:
        start: The first position of the range.
        stop: The end of the range (exclusive).
        function: The function.
    """

    start: int
    stop: int
    function: Function


class Sequence(ABC):
    """The values of a hyperparameter during the training. A sequence is immutable and has no side effects.

    A position counts the experiment's unit, starting with 0. `value(p)` is in force while unit p is trained, that is,
    from the boundary p on. Values are computed exactly from the decimal numbers as they are written, and rounded to a
    double once. Integral values are ints. Two sequences are equal if their written forms are equal.

    The written form is the JSON value that represents the sequence in configurations, files and journals.
    """

    kind: ClassVar[str]
    """The key of this kind of sequence in the written form, such as `exponential`."""

    milestones_from_start: ClassVar[bool] = False
    """True if the positions in its fields count from the start of the training even after a warm-up."""

    @abstractmethod
    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield the functions of the sequence in ascending order, each with the position from which it is in force.

        The last function has no end. There may be infinitely many functions.

        Args:
            origin: The position of the first function. The parameters of the sequence count positions from here.
        """

    @abstractmethod
    def to_data(self) -> dict[str, JsonValue]:
        """Return the part of the written form below the key `sequence`, such as `{exponential: {initial: 0.1, gamma: 0.95}}`."""

    @property
    def per_step(self) -> bool:
        """True if the sequence counts optimizer steps instead of the experiment's unit."""
        return False

    def written(self) -> dict[str, JsonValue]:
        """Return the written form of the sequence, as a configuration value: `{sequence: ...}`."""
        return {"sequence": self.to_data()}

    def __eq__(self, other: object) -> bool:
        """Return True if the written forms, with defaults filled in, are equal. `common_prefix` compares the values."""
        return self._text == other._text if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        """Return a hash of the written form."""
        return hash(self._text)

    @functools.cached_property
    def _text(self) -> str:
        return str(token(self.written()))

    def pieces(self, stop: int) -> list[Piece]:
        """Return the functions that are in force from position 0 to `stop` (exclusive), in order, each with its range.

        Adjacent ranges with the same function are merged.
        """
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
        """Return the value that is in force while the unit `position` (0 or more) is trained.

        Raises:
            SequenceError: The position is negative, or the value is too large for a double.
        """
        return Cursor(self).value(position)

    def next_change(self, position: int, stop: int) -> int:
        """Return the first position after `position` and before `stop` at which the value changes; if there is none, `stop`."""
        return Cursor(self).next_change(position, stop)

    def prefix_key(self, position: int) -> str:
        """Return a text that is equal for two sequences exactly if they have equal values at 0, 1, ..., position - 1."""
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
    """Evaluates one sequence efficiently at ascending positions.

    Each call continues from the position of the previous one. A call with an earlier position starts again from 0.

    Args:
        sequence: The sequence. The cursor starts at its position 0.
    """

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence
        self._rewind()

    def value(self, position: int) -> JsonValue:
        """Return the value that is in force while the unit `position` (0 or more) is trained.

        Raises:
            SequenceError: The position is negative, or the value is too large for a double.
        """
        self._go(position)
        return self._known[0][1].value(position)

    def next_change(self, position: int, stop: int) -> int:
        """Return the first position after `position` and before `stop` at which the value changes; if there is none, `stop`."""
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
        """The current span, followed by the later spans that were read."""

    def _go(self, position: int) -> None:
        if position < 0:
            raise SequenceError(f"a position is 0 or more, found {position}")
        if position < self._known[0][0]:
            self._rewind()
        while self._reads(1) and self._known[1][0] <= position:
            self._known.popleft()

    def _reads(self, index: int) -> bool:
        """Read the functions of the sequence until the one at `index` is known, where the current function has the index 0.

        Return False if the sequence ends before `index`, else True.
        """
        while len(self._known) <= index:
            following = next(self._rest, None)
            if following is None:
                return False
            self._known.append(following)
        return True


def common_prefix(one: Sequence, other: Sequence, until: int) -> int:
    """Return the number of leading positions at which two sequences have equal values, at most `until`.

    It is the largest p <= `until` such that the values at 0, ..., p - 1 are equal. It is 0 if one of two different
    sequences counts optimizer steps.

    Ranges in which both have the same function are equal over their complete length. Values are compared one by one
    only where two different functions overlap; such functions usually differ after a few positions.
    """
    if one == other:
        return until
    if one.per_step != other.per_step or one.per_step:
        return 0  # The number of optimizer steps in a unit is not known here.
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
    """Yield the spans that are in force from `begin` to `end` (exclusive; None: without end).

    Args:
        spans: Functions in ascending order, each with the position from which it is in force.
        begin: The position that replaces the start of the first yielded span.
        end: The position before which yielded spans start; None: no limit.
    """
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
