"""Evaluates configurations that contain sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hopyard.sequences.base import Cursor, Sequence
from hopyard.sequences.parse import is_written, read
from hopyard.sequences.rational import SequenceError


class Schedule:
    """A parsed configuration with plain values and sequences, including those in groups.

    Query it at ascending positions: each query continues from the previous one, so it takes the same time at any
    position.

    Attributes:
        sequences: The sequences by dotted name. If empty, nothing changes during training.
    """

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        """Parse a configuration.

        Raises:
            SequenceError: A sequence is wrong. The message names it.
        """
        self._configuration = configuration
        self.sequences: dict[str, Sequence] = dict(_found(configuration, ""))
        self._cursors = {name: Cursor(sequence) for name, sequence in self.sequences.items()}

    @property
    def per_step(self) -> tuple[str, ...]:
        """The sequences that count optimizer steps."""
        return tuple(name for name, sequence in self.sequences.items() if sequence.per_step)

    def at(self, position: int, step: int = 0) -> dict[str, Any]:
        """Return the configuration with the values in force while the unit `position` is trained.

        Args:
            position: 0 or more.
            step: Number of optimizer steps made before, for sequences that count steps.
        """
        return self._at(self._configuration, "", position, step)

    def next_change(self, position: int, stop: int) -> int:
        """Return the first position after `position` and before `stop` where a value changes, else `stop`. It ignores `per: step`."""
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
    """Return `Schedule(configuration).at(position, step)`."""
    return Schedule(configuration).at(position, step)


def sequences_of(configuration: Mapping[str, Any]) -> dict[str, Sequence]:
    """Return `Schedule(configuration).sequences`."""
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
