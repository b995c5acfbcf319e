"""Random search."""

from __future__ import annotations

from typing import Any, ClassVar

from hopyard.generator import Generator
from hopyard.space import Configuration, Space, below, canonical_json, stream

_ATTEMPTS = 100
"""Draws before a configuration that is new is looked for in order; reached only when nearly all are taken."""


class RandomGenerator(Generator):
    """Independent draws from the space, none twice; a finite space is exhausted when each configuration was drawn.

    Proposal n depends on the seed, n and each parameter's name only (`Space.sample_at`), except where a draw would
    repeat an earlier one: then further draws of the same ordinal are taken.
    """

    report_order_matters: ClassVar[bool] = False

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        """Takes no parameters of its own."""
        super().__init__(space, seed, **parameters)
        self._seen = set[str]()
        self._rest: list[Configuration] | None = None

    @property
    def size(self) -> int | None:
        """The size of the space."""
        return self.space.size

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Draw until the configuration is new; None when there is no new one."""
        for attempt in range(_ATTEMPTS if self._rest is None else 0):
            found = self.space.sample_at(self.seed, ordinal, attempt)
            if (key := canonical_json(found)) not in self._seen:
                self._seen.add(key)
                return found
        return self._one_of_the_rest(ordinal)

    def _one_of_the_rest(self, ordinal: int) -> Configuration | None:
        # Drawing has become hopeless: from here on, pick from the list of what is left. A space that cannot be counted
        # but repeats itself all the same (bounds one rounding error apart) has nothing left.
        if self._rest is None:
            everything = (self.space.at(index) for index in range(self.size or 0))
            self._rest = [found for found in everything if canonical_json(found) not in self._seen]
        if not self._rest:
            return None
        index = below(stream(self.seed, ordinal, "rest"), len(self._rest))
        self._rest[index], self._rest[-1] = self._rest[-1], self._rest[index]
        return self._rest.pop()
