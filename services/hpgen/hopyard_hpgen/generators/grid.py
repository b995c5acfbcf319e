"""Grid search: a generator that proposes every point of a grid."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from hopyard.generator import Generator, GeneratorParameterError
from hopyard.space import Configuration, ConstraintsError, Space, below, show, stream

_LONGEST: Final = 100_000
"""Maximum number of consecutive grid points that violate the constraints. Checking so many takes a second or two."""

_MOST_POINTS: Final = 2**62
"""Maximum number of grid points: messages and journals hold their number."""


class GridGenerator(Generator):
    """Proposes every grid point once, in odometer order: the last name of the space changes fastest, the first slowest.

    For `a: {choice: [1, 2]}` before `b: {choice: [x, y]}` the order is (1, x), (1, y), (2, x), (2, y). A continuous
    parameter needs `count` or `step` in the space, which define its grid values. Points that violate the constraints are
    skipped. With `shuffle: true` the seed determines a random order, which is better for a search that may be stopped
    early; otherwise the seed has no effect. `points: [0, 3]` proposes only the grid points with these numbers, counted
    from 0 in odometer order.

    Args:
        space: The space. Each continuous parameter needs `count` or `step`.
        seed: Seed of the random order.
        shuffle: True: propose the points in a random order. False: in odometer order.
        points: Numbers of the points to propose, from 0 in odometer order; None: all.
        **parameters: Any other parameter is an error.

    Raises:
        GeneratorParameterError: `shuffle` is not a boolean, `points` is not a list of distinct numbers of grid points, or a
            parameter is unknown.
        SpaceError: A continuous parameter has no `count` or `step`.
    """

    report_order_matters: ClassVar[bool] = False

    def __init__(
        self, space: Space, seed: int, *, shuffle: bool = False, points: list[int] | None = None, **parameters: Any
    ) -> None:
        super().__init__(space, seed, **parameters)
        if not isinstance(shuffle, bool):
            raise GeneratorParameterError(f"grid needs shuffle as true or false, found {show(shuffle)}")
        if space.grid_size > _MOST_POINTS:
            raise GeneratorParameterError(
                f"grid can have at most 2^62 points, found 2^{space.grid_size.bit_length() - 1} or more; "
                "divide the space less, or use the generator random"
            )
        self._points = _checked(points, space.grid_size)
        self._size = space.grid_size if self._points is None else len(self._points)
        self._next = 0
        self._moved = dict[int, int]()
        self._rng = stream(seed, "grid") if shuffle else None

    @property
    def size(self) -> int | None:
        """The number of grid points, or of `points` if given; None: unknown because of constraints."""
        return None if self.space.constraints else self._size

    def create(self, job: str, ordinal: int) -> Configuration | None:
        """Return the next point that satisfies the constraints; None after the last point. `job` and `ordinal` are unused.

        Raises:
            ConstraintsError: `_LONGEST` consecutive points violate the constraints.
        """
        for index in range(self._next, min(self._next + _LONGEST, self._size)):
            self._next += 1
            place = index if self._rng is None else self._swap(index)
            point = self.space.grid_at(place if self._points is None else self._points[place])
            if self.space.fits(point):
                return point
        if self._next < self._size:
            raise ConstraintsError(
                f"constraints: {_LONGEST} grid points in a row did not fit; loosen the constraints, or divide the space less"
            )
        return None

    def _swap(self, index: int) -> int:
        # One step of a Fisher-Yates shuffle of 0..size-1, which stores only the entries that were moved.
        assert self._rng is not None
        other = index + below(self._rng, self._size - index)
        drawn = self._moved.pop(other, other)
        if other != index:
            self._moved[other] = self._moved.pop(index, index)
        return drawn


def _checked(points: list[int] | None, size: int) -> list[int] | None:
    given: object = points  # from a file
    whole = isinstance(given, list) and all(isinstance(p, int) and not isinstance(p, bool) for p in given)
    if points is None or (
        whole and points and len(set(points)) == len(points) and 0 <= min(points) <= max(points) < size
    ):
        return points
    raise GeneratorParameterError(
        f"grid needs points as a list of different whole numbers from 0 to {size - 1}, found {show(points)}"
    )
