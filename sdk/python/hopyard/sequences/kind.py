"""The common base class of the kinds of sequences: checks of their fields, and their written form (JSON)."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final, cast

from hopyard.sequences.base import Sequence
from hopyard.sequences.rational import JsonValue, SequenceError, fraction, is_number, show

NEEDED: Final[Any] = None
"""The default of a required field that follows an optional one."""


@dataclass(frozen=True, eq=False)
class SequenceKind(Sequence):
    """Base class of the kinds of sequences (constant, linear, warm-up, ...), which are dataclasses with the kind's parameters.

    The written form contains the fields of the dataclass, except those that are None.
    """

    inherits: ClassVar[str | None] = None
    """The name of the field that is set to the target of a preceding warm-up if it is omitted; None: there is none."""

    def to_data(self) -> dict[str, JsonValue]:
        """Return the part of the written form below the key `sequence`: the kind, with the fields that are not None."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {self.kind: {name: _plain(value) for name, value in given.items() if value is not None}}

    def __str__(self) -> str:
        """Return a short text for tables, without fields that have their default value."""
        given = [(field.name, getattr(self, field.name), field.default) for field in dataclasses.fields(self)]
        return (
            f"{self.kind}({', '.join(f'{name}={_short(found)}' for name, found, default in given if found != default)})"
        )

    def _fraction(self, name: str) -> Fraction:
        """Return the number in the field `name`, exactly as the user wrote it.

        Raises:
            SequenceError: The field is None, because it was omitted although no warm-up precedes the sequence.
        """
        value = getattr(self, name)
        if value is None:
            raise error(self, name, "is missing; it may be omitted only after a warm-up, whose target is then used")
        return fraction(value)

    def _numbers(self, *names: str, positive: bool = False) -> None:
        for name in names:
            value = getattr(self, name)
            if value is None and name == self.inherits:
                continue
            if not is_number(value) or (positive and not value > 0):
                wanted = f"needs a finite number{' above 0' if positive else ''}"
                raise error(
                    self, name, f"is missing; it {wanted}" if value is None else f"{wanted}, found {show(value)}"
                )

    def _counts(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if not is_count(value):
                wanted = "needs a whole number, 1 or more"
                raise error(
                    self, name, f"is missing; it {wanted}" if value is None else f"{wanted}, found {show(value)}"
                )

    def _rising(self, name: str) -> None:
        found = getattr(self, name)
        if not isinstance(found, list | tuple):
            raise error(self, name, f"needs a list of positions, found {show(found)}")
        if not all(is_count(at) for at in found) or any(a >= b for a, b in itertools.pairwise(found)):
            raise error(self, name, f"needs whole numbers, 1 or more, each above the one before, found {show(found)}")
        object.__setattr__(self, name, tuple(found))


def is_count(value: object) -> bool:
    """Return True if `value` is an int from 1 to 2^53 - 1, as numbers of units must be."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value < 2**53


def error(sequence: Sequence, name: str, reason: str) -> SequenceError:
    """Return an error about a field of a sequence.

    Args:
        sequence: The sequence.
        name: The name of the field.
        reason: What is wrong, as a message without the name of the field.
    """
    return SequenceError(reason, (sequence.kind, name))


def _plain(value: Any) -> JsonValue:
    if isinstance(value, Sequence):
        return cast(JsonValue, value.to_data())
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_short(item) for item in value)}]"
    return str(value) if isinstance(value, Sequence) else show(value)
