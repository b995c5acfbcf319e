"""Sequences that consist of other sequences: after a warm-up, in succession, or on a slower clock.

The clock of a sequence is the number of units that its parameters count, starting with 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from hopyard.sequences.base import Sequence, clipped
from hopyard.sequences.functions import Function, LinearFunction, SlowedFunction
from hopyard.sequences.kind import SequenceKind, error, is_count
from hopyard.sequences.kinds import ConstantSequence
from hopyard.sequences.rational import JsonValue, SequenceError, fraction, show


@dataclass(frozen=True, eq=False)
class Warmup(SequenceKind):
    """A linear increase from `start` to `target`, then another sequence.

    The target is reached at the last unit of the warm-up. The other sequence counts its positions from the end of the
    warm-up. The milestones of a `MultiStep` are an exception: they count from the start of the warm-up.

    Attributes:
        duration: The number of units of the warm-up, 1 or more.
        target: The value at its last unit.
        then: The sequence after the warm-up. If its field `initial` or `start` is None, it begins with the target. If
            there is no sequence (`then` is None), the value stays at the target.
        start: The value from which it increases. It is the value of the (not existing) unit before the first one.
    """

    duration: int
    target: float
    then: Sequence | None = None
    start: float = 0.0
    kind: ClassVar[str] = "warmup"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid, and set the initial value of `then` if it is None."""
        self._counts("duration")
        self._numbers("target", "start")
        if self.then is None:
            object.__setattr__(self, "then", ConstantSequence(self.target))
            return
        then = _part(self, "then", self.then)
        if then.inherits and getattr(then, then.inherits) is None and getattr(then, "values", None) is None:
            object.__setattr__(self, "then", dataclasses.replace(then, **cast(Any, {then.inherits: self.target})))

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: a linear function from `origin` on, then those of the next sequence."""
        start, target, then = fraction(self.start), fraction(self.target), cast(Sequence, self.then)
        end = origin + self.duration
        yield origin, LinearFunction.through(end - 1, target, (target - start) / self.duration)
        yield from clipped(then.spans(origin if then.milestones_from_start else end), end)


@dataclass(frozen=True, eq=False)
class Chain(SequenceKind):
    """Several sequences in succession (SequentialLR).

    Attributes:
        sequences: The sequences, one more than there are milestones.
        milestones: The positions at which the next sequence begins, counted from the start of the chain; ascending, 1 or more. Each
            sequence counts its own positions from its beginning.
    """

    sequences: tuple[Sequence, ...]
    milestones: tuple[int, ...]
    kind: ClassVar[str] = "chain"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        self._rising("milestones")
        count = len(self.milestones) + 1
        if not isinstance(self.sequences, list | tuple) or len(self.sequences) != count:
            raise error(self, "sequences", f"needs {count} of them, one more than milestones")
        object.__setattr__(self, "sequences", tuple(_part(self, "sequences", part) for part in self.sequences))

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: those of each sequence within its range. Ranges count from `origin`."""
        starts = [origin, *(origin + at for at in self.milestones)]
        for part, start, end in zip(self.sequences, starts, [*starts[1:], None], strict=True):
            yield from clipped(part.spans(start), start, end)


@dataclass(frozen=True, eq=False)
class Paced(Sequence):
    """A sequence whose clock, the count from which it computes its values, does not advance with every unit (key `per`).

    Attributes:
        of: The sequence, which must not be a `Paced`.
        per: The number of units (1 or more) after which the clock increases by 1; "step": the clock counts optimizer
            steps.
    """

    of: Sequence
    per: int | Literal["step"]
    kind: ClassVar[str] = "per"

    def __post_init__(self) -> None:
        """Raise SequenceError unless the fields are valid."""
        if isinstance(self.of, Paced) or not isinstance(self.of, Sequence):
            raise SequenceError(f"needs a sequence without another per, found {self.of}", ("per",))
        if self.per != "step" and not is_count(self.per):
            raise SequenceError(f"needs step, or a whole number of units, 1 or more; found {show(self.per)}", ("per",))

    @property
    def per_step(self) -> bool:
        """True if the sequence counts optimizer steps (`per` is "step")."""
        return self.per == "step"

    def to_data(self) -> dict[str, JsonValue]:
        """Return the part of the written form below the key `sequence`. It is that of the inner sequence."""
        return self.of.to_data()

    def written(self) -> dict[str, JsonValue]:
        """Return the written form of the inner sequence with the key `per` added."""
        return {**self.of.written(), "per": self.per}

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield pairs of a start position and a function: those of the inner sequence, from `origin` on.

        If `per` is a number, the inner functions are evaluated at position // `per`, and start positions are multiplied by `per`.
        If `per` is "step", the functions and start positions are unchanged, and positions are numbers of optimizer steps.
        """
        every = self.per if isinstance(self.per, int) else 1
        for start, function in self.of.spans(0):
            slow = function if every == 1 or function.constant else SlowedFunction(function, every)
            yield origin + start * every, slow

    def __str__(self) -> str:
        """Return a short text for tables: the inner sequence and `per`."""
        return f"{self.of} per {self.per}"


def _part(outer: SequenceKind, name: str, found: object) -> SequenceKind:
    if isinstance(found, Paced):
        raise error(outer, name, "already has per; allowed: one per for the complete sequence")
    if not isinstance(found, SequenceKind):
        raise error(outer, name, f"needs a sequence, found {show(found)}")
    return found
