"""Evaluation of configurations that contain sequences: the values of all hyperparameters at a position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hopyard.sequences.base import Cursor, Sequence
from hopyard.sequences.parse import is_written, read
from hopyard.sequences.rational import SequenceError


class Schedule:
    """Evaluates a configuration with plain values and sequences at ascending positions.

    Each query continues from the previous one, so it takes the same time at any position. Values may be in nested
    groups.

    Args:
        configuration: JSON values and sequences in written form by name, with nested groups.

    Attributes:
        sequences: The sequences by name. Names in groups are joined by dots. Empty: no value changes during the
            training.

    Raises:
        SequenceError: A sequence is invalid. The message names the hyperparameter.
    """

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        self._configuration = configuration
        self.sequences: dict[str, Sequence] = dict(_found(configuration, ""))
        self._cursors = {name: Cursor(sequence) for name, sequence in self.sequences.items()}

    @property
    def per_step(self) -> tuple[str, ...]:
        """The names of the hyperparameters whose sequences count optimizer steps."""
        return tuple(name for name, sequence in self.sequences.items() if sequence.per_step)

    def at(self, position: int, step: int = 0) -> dict[str, Any]:
        """Return the configuration with the values that are in force while the unit `position` is trained.

        Args:
            position: The position in the experiment's unit, 0 or more.
            step: The number of optimizer steps since the start of the training; used by sequences that count steps.

        Raises:
            SequenceError: The position is negative, or a value is too large for a double.
        """
        return self._at(self._configuration, "", position, step)

    def next_change(self, position: int, stop: int) -> int:
        """Return the first position after `position` and before `stop` at which a value changes; if there is none, `stop`.

        Sequences that count optimizer steps are ignored.
        """
        for name, sequence in self.sequences.items():
            if not sequence.per_step:
                stop = self._cursors[name].next_change(position, stop)
        return stop

    def _at(self, configuration: Mapping[str, Any], group: str, position: int, step: int) -> dict[str, Any]:
        found = dict[str, Any]()
        for name, value in configuration.items():
            path = f"{group}{name}"
            if is_written(value):
                found[name] = self._cursors[path].value(step if self.sequences[path].per_step else position)
            else:
                nested = isinstance(value, Mapping)
                found[name] = self._at(value, f"{path}.", position, step) if nested else value
        return found


def values_at(configuration: Mapping[str, Any], position: int, step: int = 0) -> dict[str, Any]:
    """Return the configuration with the values that are in force while the unit `position` is trained.

    Args:
        configuration: JSON values and sequences in written form by name, with nested groups.
        position: The position in the experiment's unit, 0 or more.
        step: The number of optimizer steps since the start of the training; used by sequences that count steps.

    Raises:
        SequenceError: A sequence is invalid, the position is negative, or a value is too large for a double.
    """
    return Schedule(configuration).at(position, step)


def sequences_of(configuration: Mapping[str, Any]) -> dict[str, Sequence]:
    """Return the sequences of a configuration by name. Names in groups are joined by dots.

    Raises:
        SequenceError: A sequence is invalid.
    """
    return Schedule(configuration).sequences


def _found(configuration: Mapping[str, Any], group: str) -> Iterator[tuple[str, Sequence]]:
    for name, value in configuration.items():
        if is_written(value):
            try:
                yield f"{group}{name}", read(value)
            except SequenceError as error:
                raise error.inside(f"{group}{name}") from None
        elif isinstance(value, Mapping):
            yield from _found(value, f"{group}{name}.")
