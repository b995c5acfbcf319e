"""Sequences that consist of other sequences: after a warm-up, one after another, or on a slower clock."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from hopyard.sequences.base import Sequence, clipped
from hopyard.sequences.functions import Function, LinearFunction, SlowedFunction
from hopyard.sequences.kind import SequenceKind, error, is_count
from hopyard.sequences.kinds import Constant
from hopyard.sequences.rational import JsonValue, SequenceError, fraction, show


@dataclass(frozen=True, eq=False)
class Warmup(SequenceKind):
    """Rises linearly from `start` to `target` over `duration` units, then continues with another sequence.

    `target` is reached at the last of these units. The clock of the other sequence starts at the end of the warm-up,
    except that milestones count from the start of the training. If it has no initial value, it starts at `target`.
    Without another sequence, the value stays at `target`.
    """

    duration: int
    target: float
    then: Sequence | None = None
    start: float = 0.0
    kind: ClassVar[str] = "warmup"

    def __post_init__(self) -> None:
        """Check the fields, and set the initial value of `then`."""
        self._counts("duration")
        self._numbers("target", "start")
        if self.then is None:
            object.__setattr__(self, "then", Constant(self.target))
            return
        then = _part(self, "then", self.then)
        if then.inherits and getattr(then, then.inherits) is None and getattr(then, "values", None) is None:
            object.__setattr__(self, "then", dataclasses.replace(then, **cast(Any, {then.inherits: self.target})))

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield a ramp and the spans of the other sequence."""
        start, target, then = fraction(self.start), fraction(self.target), cast(Sequence, self.then)
        end = origin + self.duration
        yield origin, LinearFunction.through(end - 1, target, (target - start) / self.duration)
        yield from clipped(then.spans(origin if then.milestones_from_start else end), end)


@dataclass(frozen=True, eq=False)
class Chain(SequenceKind):
    """Several sequences in succession. Each has a clock that starts at its milestone (SequentialLR)."""

    sequences: tuple[Sequence, ...]
    milestones: tuple[int, ...]
    kind: ClassVar[str] = "chain"

    def __post_init__(self) -> None:
        """Check the fields."""
        self._rising("milestones")
        count = len(self.milestones) + 1
        if not isinstance(self.sequences, list | tuple) or len(self.sequences) != count:
            raise error(self, "sequences", f"needs {count} of them, one more than milestones")
        object.__setattr__(self, "sequences", tuple(_part(self, "sequences", part) for part in self.sequences))

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield the spans of each part within its range."""
        starts = [origin, *(origin + at for at in self.milestones)]
        for part, start, end in zip(self.sequences, starts, [*starts[1:], None], strict=True):
            yield from clipped(part.spans(start), start, end)


@dataclass(frozen=True, eq=False)
class Paced(Sequence):
    """A complete sequence on another clock: one tick per `per` units, or one per optimizer step (`per: step`)."""

    of: Sequence
    per: int | Literal["step"]
    kind: ClassVar[str] = "per"

    def __post_init__(self) -> None:
        """Check the fields."""
        if isinstance(self.of, Paced) or not isinstance(self.of, Sequence):
            raise SequenceError(f"needs a sequence without another per, found {self.of}", ("per",))
        if self.per != "step" and not is_count(self.per):
            raise SequenceError(f"needs step, or a whole number of units, 1 or more; found {show(self.per)}", ("per",))

    @property
    def per_step(self) -> bool:
        """Whether the clock counts optimizer steps."""
        return self.per == "step"

    def to_data(self) -> dict[str, JsonValue]:
        """Return the written form of the inner sequence."""
        return self.of.to_data()

    def written(self) -> dict[str, JsonValue]:
        """Return the written form of the inner sequence with `per` added."""
        return {**self.of.written(), "per": self.per}

    def spans(self, origin: int) -> Iterator[tuple[int, Function]]:
        """Yield the spans of the inner sequence on the slower clock."""
        every = self.per if isinstance(self.per, int) else 1
        for start, function in self.of.spans(0):
            slow = function if every == 1 or function.constant else SlowedFunction(function, every)
            yield origin + start * every, slow

    def __str__(self) -> str:
        """Return a short text for tables."""
        return f"{self.of} per {self.per}"


def _part(outer: SequenceKind, name: str, found: object) -> SequenceKind:
    if isinstance(found, Paced):
        raise error(outer, name, "already has per; allowed: one per for the complete sequence")
    if not isinstance(found, SequenceKind):
        raise error(outer, name, f"needs a sequence, found {show(found)}")
    return found
