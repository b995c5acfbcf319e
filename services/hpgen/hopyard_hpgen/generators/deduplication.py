"""Helpers with which generators avoid proposing the same configuration twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hopyard.space import Configuration, Problem, Space, SpaceError, below, canonical_json, stream

_ATTEMPTS: Final = 100
"""Maximum number of draws for a new configuration before the remaining ones are listed."""

_LISTED: Final = 100_000
"""Maximum size of a space whose remaining configurations are listed, in configurations."""


class UnproposedConfigurations:
    """Tracks which configurations of a space were proposed, to find new ones.

    A new instance has recorded no proposals. A *draw* is a call of a function that a generator passes to `first`, and that returns a
    configuration, new or not. If repeated draws give no new configuration and the space has at most `_LISTED` ones, the remaining
    configurations are listed, and one of them is chosen at random.

    Args:
        space: The search space.
        seed: Seed for the random choice among the listed configurations.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._seen = set[str]()
        self._rest: list[Configuration] | None = None

    @property
    def size(self) -> int | None:
        """The size of the space; None: infinite or, with constraints, unknown."""
        return None if self._space.constraints else self._space.size

    def first(self, ordinal: int, draw: Callable[[int], Configuration]) -> Configuration | None:
        """Return the first new configuration of `draw(0)`, `draw(1)`, ... and record it as proposed.

        If 100 draws give no new one, list the remaining configurations of the space and choose one of them at random.

        Args:
            ordinal: Number of the proposal, from 0, for the random choice.
            draw: Returns a configuration for the number of the draw, from 0 to 99.

        Returns:
            The configuration. None: none is left, or 100 draws gave no new one and the space is too large to list.
        """
        for attempt in range(_ATTEMPTS if self._rest is None else 0):
            found = draw(attempt)
            if self.add(found):
                return found
        if self._rest is None:
            size = self._space.size or 0
            everything = (self._space.at(index) for index in range(size)) if size <= _LISTED else ()
            self._rest = [
                found for found in everything if self._space.fits(found) and canonical_json(found) not in self._seen
            ]
        while self._rest:
            index = below(stream(self._seed, ordinal, "rest"), len(self._rest))
            self._rest[index], self._rest[-1] = self._rest[-1], self._rest[index]
            found = self._rest.pop()
            if self.add(found):  # Others may have been added since the remaining ones were listed.
                return found
        return None

    def add(self, configuration: Configuration) -> bool:
        """Record a configuration as proposed. Return whether it was not recorded before."""
        key = canonical_json(configuration)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


def need_units(space: Space, generator: str) -> None:
    """Check that every parameter of a space can be mapped to the unit interval [0, 1], as some generators need it.

    All parameters can be mapped except sequences that cannot be enumerated.

    Args:
        space: The space.
        generator: Name of the generator, for the error message.

    Raises:
        SpaceError: The space has such sequences (for example learning-rate schedules with a continuous field).
    """
    found = [name for name, parameter in space.items() if not parameter.has_unit]
    message = f"{generator} needs sequences that can be counted: give their fields choices, or use the generator random"
    if found:
        raise SpaceError([Problem(tuple(name.split(".")), message) for name in found])
