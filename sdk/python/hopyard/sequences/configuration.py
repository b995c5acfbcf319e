"""Configurations with sequences in them: what is in force at a position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hopyard.sequences.base import Cursor, Sequence
from hopyard.sequences.parse import is_written, read
from hopyard.sequences.rational import SequenceError


class Schedule:
    """A configuration, read once: plain values, and sequences (those in groups included).

    To be asked at rising positions: each answer goes on from the one before, and takes as long at any position.

    Attributes:
        sequences: by dotted name; none: nothing changes during training.
    """

    def __init__(self, configuration: Mapping[str, Any]) -> None:
        """Read it.

        Raises:
            SequenceError: a sequence is wrong; the message names it.
        """
        self._configuration = configuration
        self.sequences: dict[str, Sequence] = dict(_found(configuration, ""))
        self._cursors = {name: Cursor(sequence) for name, sequence in self.sequences.items()}

    @property
    def per_step(self) -> tuple[str, ...]:
        """The sequences that count optimizer steps."""
        return tuple(name for name, sequence in self.sequences.items() if sequence.per_step)

    def at(self, position: int, step: int = 0) -> dict[str, Any]:
        """The configuration with the values that are in force while the unit `position` is trained.

        Args:
            position: 0 or more.
            step: how many optimizer steps were made before, for sequences that count these.
        """
        return self._at(self._configuration, "", position, step)

    def next_change(self, position: int, stop: int) -> int:
        """The first position behind `position` and before `stop` where a value changes; else `stop`. Steps are not looked at."""
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
    """What `Schedule(configuration).at(position, step)` says."""
    return Schedule(configuration).at(position, step)


def sequences_of(configuration: Mapping[str, Any]) -> dict[str, Sequence]:
    """What `Schedule(configuration).sequences` holds."""
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
