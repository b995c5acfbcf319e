"""Proposing no configuration twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hopyard.space import Configuration, Problem, Space, SpaceError, below, canonical_json, stream

_ATTEMPTS: Final = 100
"""Draws before a configuration that is new is looked for in order; reached only when nearly all are taken."""

_LISTED: Final = 100_000
"""Spaces up to this size are listed when drawing has become hopeless."""


class Unseen:
    """What of a space was not proposed yet.

    Args:
        space: what is proposed from.
        seed: of the choice among the last ones.
    """

    def __init__(self, space: Space, seed: int) -> None:
        """Nothing was proposed yet."""
        self._space = space
        self._seed = seed
        self._seen = set[str]()
        self._rest: list[Configuration] | None = None

    @property
    def size(self) -> int | None:
        """How many there are to begin with; None: endless, or, with constraints, not known."""
        return None if self._space.constraints else self._space.size

    def first(self, ordinal: int, draw: Callable[[int], Configuration]) -> Configuration | None:
        """The first of `draw(0)`, `draw(1)`, ... that is new; when drawing has become hopeless, one of the rest.

        None when there is no new one: all are taken, or a hundred draws in a row were known already and the space is too
        large to look for others in order (bounds one rounding error apart; constraints that only few fit).
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
            if self.add(found):  # Others may have been noted since the rest was listed.
                return found
        return None

    def add(self, configuration: Configuration) -> bool:
        """Takes note of a configuration; answers whether it is new."""
        key = canonical_json(configuration)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


def need_units(space: Space, generator: str) -> None:
    """Refuse a space with a parameter that no point of the unit interval stands for.

    Raises:
        SpaceError: sequences that cannot be counted.
    """
    found = [name for name, parameter in space.items() if not parameter.has_unit]
    message = f"{generator} needs sequences that can be counted: give their fields choices, or use the generator random"
    if found:
        raise SpaceError([Problem(tuple(name.split(".")), message) for name in found])
