"""Random search: a generator that draws configurations at random."""

from __future__ import annotations

from typing import Any, ClassVar

from hopyard.generator import Generator
from hopyard.space import Configuration, Space
from hopyard_hpgen.generators.deduplication import UnproposedConfigurations


class RandomGenerator(Generator):
    """Draws independently from the space without duplicates; a finite space is exhausted when all configurations were drawn.

    Proposal n depends only on the seed, n and the names of the parameters (`Space.sample_at`). If a draw repeats an earlier
    configuration or violates the constraints, it is replaced by another draw for the same n.

    Args:
        space: The search space.
        seed: Seed of the draws.
        **parameters: Any parameter is an error.

    Raises:
        GeneratorParameterError: A parameter is given.
        ConstraintsError: Hardly any configuration satisfies the constraints.
    """

    report_order_matters: ClassVar[bool] = False

    def __init__(self, space: Space, seed: int, **parameters: Any) -> None:
        super().__init__(space, seed, **parameters)
        self._unseen = UnproposedConfigurations(space, seed)
        space.sample_at(seed, 0)

    @property
    def size(self) -> int | None:
        """The number of configurations of the space; None: infinite or, with constraints, unknown."""
        return self._unseen.size

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Return a new configuration that satisfies the constraints; None: none was found. `job` is unused.

        `ordinal` is the number of the proposal, from 0, which determines the draw.
        """
        return self._unseen.first(ordinal, lambda attempt: self.space.sample_at(self.seed, ordinal, attempt))
