"""Grid search."""

from __future__ import annotations

from typing import Any, ClassVar

from hopyard.generator import Generator, GeneratorParameterError
from hopyard.space import Configuration, Space, below, show, stream


class GridGenerator(Generator):
    """Every grid point once, in odometer order: the last name of the space turns fastest, the first slowest.

    For `a: {choice: [1, 2]}` before `b: {choice: [x, y]}` that is (1, x), (1, y), (2, x), (2, y). A continuous
    parameter says how it is divided by `count` or `step`. With `shuffle: true` the seed puts the points in random
    order, which is kinder to a search that may be stopped early; without it the seed plays no part.
    """

    report_order_matters: ClassVar[bool] = False

    def __init__(self, space: Space, seed: int, *, shuffle: bool = False, **parameters: Any) -> None:
        """Take the points in odometer order, or with `shuffle` in an order drawn from the seed.

        Raises:
            GeneratorParameterError: `shuffle` is not true or false, or a parameter is unknown.
            SpaceError: a continuous parameter does not say how it is divided.
        """
        super().__init__(space, seed, **parameters)
        if not isinstance(shuffle, bool):
            raise GeneratorParameterError(f"grid needs shuffle as true or false, found {show(shuffle)}")
        self._size = space.grid_size
        self._next = 0
        self._moved = dict[int, int]()
        self._rng = stream(seed, "grid") if shuffle else None

    @property
    def size(self) -> int:
        """The number of grid points."""
        return self._size

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """The next point; None after the last."""
        if self._next >= self._size:
            return None
        index = self._next
        self._next += 1
        return self.space.grid_at(index if self._rng is None else self._swap(index))

    def _swap(self, index: int) -> int:
        # One step of a Fisher-Yates shuffle over 0..size-1 that stores only the places that were moved.
        assert self._rng is not None
        other = index + below(self._rng, self._size - index)
        drawn = self._moved.pop(other, other)
        if other != index:
            self._moved[other] = self._moved.pop(index, index)
        return drawn
