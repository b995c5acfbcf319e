"""Parses the written form of sequences: the JSON values that represent them in configurations, files and journals."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from hopyard.sequences.base import Sequence
from hopyard.sequences.composition import Chain, Paced, Warmup
from hopyard.sequences.kinds import (
    ConstantSequence,
    Cosine,
    CosineWarmRestarts,
    Cyclic,
    Exponential,
    Linear,
    MultiStep,
    Piecewise,
    Polynomial,
    Step,
)
from hopyard.sequences.rational import SequenceError, is_number, near, show

_ALL: Final = (
    ConstantSequence, Linear, Exponential, Step, MultiStep, Cosine, CosineWarmRestarts, Cyclic, Polynomial, Piecewise, Warmup, Chain,
)  # fmt: skip

SEQUENCES: Final[Mapping[str, type[Sequence]]] = {kind.kind: kind for kind in _ALL}
"""All kinds, by the key of their written form."""

_DEEPEST: Final = 5


def is_written(value: object) -> bool:
    """Return True if `value` looks like a written sequence: a mapping with the key `sequence` and no other key except `per`.

    The key `per` sets after how many units, or that after each optimizer step, the sequence advances by one position. The values of
    the keys are not checked, so the sequence may be invalid.
    """
    return isinstance(value, Mapping) and "sequence" in value and not set(value) - {"sequence", "per"}


def read(written: Mapping[str, Any]) -> Sequence:
    """Parse the written form of a sequence: `{sequence: {kind: {field: value}}}`.

    An optional key `per` beside `sequence` sets when the sequence advances by one position: after this number of units (1 or more),
    or with `step` after each optimizer step. By default it advances with each unit.

    Raises:
        SequenceError: The written form is invalid. The error names the field.
    """
    found = read_kind(written["sequence"])
    if "per" in written:
        found = Paced(found, written["per"])
    found.value(0)  # Raises an error if a value is missing.
    return found


def as_sequence(value: Any) -> Sequence:
    """Convert a configuration value to a sequence: a written sequence is parsed, another value becomes a constant.

    Raises:
        SequenceError: The written form is invalid.
    """
    return read(value) if is_written(value) else ConstantSequence(value)


def read_kind(data: object, depth: int = 1) -> Sequence:
    """Parse the part of a written sequence below the key `sequence`: `{kind: {field: value}}`. A number becomes a constant.

    Args:
        data: The JSON value.
        depth: The nesting depth of the sequence: 1 for the outermost one. A depth above `_DEEPEST` is an error.

    Raises:
        SequenceError: The written form is invalid. The error names the field.
    """
    if is_number(data):
        return ConstantSequence(data)  # type: ignore[arg-type]
    if depth > _DEEPEST:
        raise SequenceError(f"sequences may be nested {_DEEPEST} deep")
    if not isinstance(data, Mapping) or len(data) != 1:
        raise SequenceError(f"needs one kind with its fields, such as {{exponential: {{...}}}}, found {show(data)}")
    name, given = next(iter(data.items()))
    if name not in SEQUENCES:
        raise SequenceError(f"unknown kind {name}{near(str(name), SEQUENCES)}; allowed: {', '.join(SEQUENCES)}")
    kind = SEQUENCES[name]
    if kind is ConstantSequence:
        return ConstantSequence(given)
    return kind(**_fields(kind, given, depth))


def _fields(kind: type[Sequence], given: object, depth: int) -> dict[str, Any]:
    fields = {field.name: field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    if not isinstance(given, Mapping):
        raise SequenceError(f"needs its fields, found {show(given)}; allowed: {', '.join(fields)}", (kind.kind,))
    found = dict[str, Any]()
    for name, value in given.items():
        if name not in fields:
            raise SequenceError(
                f"no such field{near(str(name), fields)}; allowed: {', '.join(fields)}", (kind.kind, name)
            )
        try:
            found[name] = _value(name, value, depth)
        except SequenceError as error:
            raise error.inside(kind.kind, name) from None
    for name, field in fields.items():
        if field.default is dataclasses.MISSING and name not in found:
            raise SequenceError(f"is missing; allowed fields: {', '.join(fields)}", (kind.kind, name))
    return found


def _value(name: str, value: Any, depth: int) -> Any:
    if name == "then":
        return read_kind(value, depth + 1)
    if name != "sequences":
        return value
    if not isinstance(value, list | tuple):
        raise SequenceError(f"needs a list of sequences, found {show(value)}")
    parts = list[Sequence]()
    for index, part in enumerate(value):
        try:
            parts.append(read_kind(part, depth + 1))
        except SequenceError as error:
            raise error.inside(index) from None
    return parts
