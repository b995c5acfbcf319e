"""Random search."""

from __future__ import annotations

from typing import Any, ClassVar

from hopyard.generator import Generator
from hopyard.space import Configuration, Space
from hopyard_hpgen.generators.deduplication import Unseen


class RandomGenerator(Generator):
    """Independent draws from the space, none twice; a finite space is exhausted when each configuration was drawn.

    Proposal n depends on the seed, n and each parameter's name only (`Space.sample_at`), except where a draw would
    repeat an earlier one or not fit the constraints: then further draws of the same ordinal are taken.
    """

    report_order_matters: ClassVar[bool] = False

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        """Takes no parameters of its own.

        Raises:
            ConstraintsError: hardly any configuration fits the constraints.
        """
        super().__init__(space, seed, **parameters)
        self._unseen = Unseen(space, seed)
        space.sample_at(seed, 0)

    @property
    def size(self) -> int | None:
        """The size of the space."""
        return self._unseen.size

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Draw until the configuration is new; None when there is no new one."""
        return self._unseen.first(ordinal, lambda attempt: self.space.sample_at(self.seed, ordinal, attempt))
