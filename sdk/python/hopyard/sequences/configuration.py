"""Configurations with sequences in them: what is in force at a position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hopyard.sequences.base import Sequence
from hopyard.sequences.exact import SequenceError
from hopyard.sequences.reading import is_written, read


def sequences_of(configuration: Mapping[str, Any]) -> dict[str, Sequence]:
    """The sequences of a configuration by dotted name, those in groups included; none: nothing changes during training.

    Raises:
        SequenceError: one of them is wrong; the message names it.
    """
    return dict(_found(configuration, ""))


def values_at(configuration: Mapping[str, Any], position: int) -> dict[str, Any]:
    """The configuration with the value at `position` (0 or more) in place of each sequence.

    Of a sequence that counts optimizer steps it is the first value: how many steps a unit has only its trainer knows.

    Raises:
        SequenceError: a sequence is wrong; the message names it.
    """
    found = dict[str, Any]()
    for name, value in configuration.items():
        if is_written(value):
            sequence = _read(name, value)
            found[name] = sequence.value(0 if sequence.per_step else position)
        else:
            found[name] = values_at(value, position) if isinstance(value, Mapping) else value
    return found


def _found(configuration: Mapping[str, Any], group: str) -> Iterator[tuple[str, Sequence]]:
    for name, value in configuration.items():
        if is_written(value):
            yield f"{group}{name}", _read(f"{group}{name}", value)
        elif isinstance(value, Mapping):
            yield from _found(value, f"{group}{name}.")


def _read(name: str, value: Mapping[str, Any]) -> Sequence:
    try:
        return read(value)
    except SequenceError as error:
        raise error.inside(name) from None
