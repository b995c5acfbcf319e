"""The interface of one hyperparameter's set of values."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from hopyard.space.errors import ParameterError
from hopyard.space.values import JsonValue, show


class Parameter(ABC):
    """The values one hyperparameter may take: immutable, comparable, sampled and gridded without global state.

    A kind of parameter is a subclass; its written form is a mapping with the key `kind` and, beside it, the options
    the kind allows: `{uniform: [0, 1], count: 5}`.
    """

    kind: ClassVar[str]
    """The key of the written form, for example `loguniform`."""

    options: ClassVar[tuple[str, ...]] = ()
    """Keys that may stand beside `kind`."""

    @classmethod
    @abstractmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Build the parameter from the written form: `value` stands under `kind`, `options` beside it.

        Raises:
            ParameterError: what was found and what is allowed.
        """

    @abstractmethod
    def to_data(self) -> JsonValue:
        """The written form; `parameter_from_data` gives an equal parameter back."""

    @abstractmethod
    def sample(self, rng: random.Random) -> JsonValue:
        """Draw one value, using nothing but `rng`."""

    @abstractmethod
    def contains(self, value: object) -> bool:
        """Whether `value` is one of the parameter's values (3 and 3.0 are the same value, 1 and true are not)."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """How many values there are; None when they cannot be counted."""

    @abstractmethod
    def at(self, index: int) -> JsonValue:
        """Value number `index`, 0 <= index < size, in a fixed order; `ParameterError` where size is None."""

    def index(self, value: object) -> int:
        """The number of `value`, which is one of the parameter's values: `at(index(value))` is it again.

        Raises:
            ParameterError: the values have no numbers.
        """
        raise ParameterError(f"{self.kind} is a continuum: its values have no numbers")

    @property
    def has_unit(self) -> bool:
        """Whether its values lie along one line, so that `from_unit` and `to_unit` can be used."""
        return True

    def from_unit(self, unit: float) -> JsonValue:
        """The value at `unit` (0 <= unit <= 1) of the way through them: an even `unit` gives what `sample` draws.

        It is the inverse of the distribution function, so low-discrepancy points, genetic operators and other methods on
        the unit cube search every kind of parameter.
        """
        size = self._counted()
        return self.at(min(int(unit * size), size - 1))

    def to_unit(self, value: object) -> float:
        """Where `value`, one of the parameter's values, lies in [0, 1]; a countable one in the middle of its part.

        `from_unit` gives it back, up to rounding where there are more than 2^50 values or for a real number.
        """
        return (self.index(value) + 0.5) / self._counted()

    def _counted(self) -> int:
        if self.size is None:
            raise ParameterError(f"{self.kind} is a continuum: it says itself where its values lie")
        return self.size

    @abstractmethod
    def grid(self) -> Sequence[JsonValue]:
        """The values a grid search takes, rising or in the order written, none twice.

        Raises:
            ParameterError: the parameter is continuous and nothing says how to divide it.
        """


def read_bounds(kind: str, value: object) -> tuple[object, object]:
    """The two entries of `[low, high]`.

    Raises:
        ParameterError: `value` is not a list of two.
    """
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ParameterError(f"{kind} needs [low, high], found {show(value)}")
    return value[0], value[1]


def check_count(kind: str, count: object) -> None:
    """Refuse a number of grid points that is neither None nor an integer of at least 2."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 2):
        raise ParameterError(f"{kind} needs count as an integer >= 2 (grid points), found {show(count)}")
