"""The base class of hyperparameters in a search space."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from hopyard.space.errors import ParameterError
from hopyard.space.values import JsonValue, show


class Parameter(ABC):
    """The set of values that one hyperparameter can have, with a distribution and a grid.

    Parameters are immutable and comparable, and use no global state. Each kind of parameter is a subclass. The written
    form of a parameter, as in an experiment file, is a mapping. One key is the name of the kind (the class attribute
    `kind`), the other keys are options of that kind: in `{uniform: [0, 1], count: 5}`, `count` is an option.
    """

    kind: ClassVar[str]
    """The key of the written form, such as `loguniform`."""

    options: ClassVar[tuple[str, ...]] = ()
    """Keys that are allowed in addition to `kind`."""

    @classmethod
    @abstractmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Create the parameter from its written form.

        Args:
            value: The value under the name of the kind, such as `[0, 1]` in `{uniform: [0, 1], count: 5}`.
            options: The other keys with their values; all are in the class attribute `options`.

        Raises:
            ParameterError: The written form is wrong. The message names what was found and what is allowed.
        """

    @abstractmethod
    def to_data(self) -> JsonValue:
        """Return the written form, a JSON value. `parameter_from_data` creates an equal parameter from it."""

    @abstractmethod
    def sample(self, rng: random.Random) -> JsonValue:
        """Draw one value at random. `rng` is the only source of randomness."""

    @abstractmethod
    def contains(self, value: object) -> bool:
        """Return whether `value` is one of the parameter's values (3 and 3.0 are equal, 1 and true are not)."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """The number of values, or None if they cannot be counted (a continuous parameter)."""

    @abstractmethod
    def at(self, index: int) -> JsonValue:
        """Return value number `index` in a fixed order, for 0 <= index < size.

        Raises:
            ParameterError: The values cannot be counted (`size` is None).
        """

    def index(self, value: object) -> int:
        """Return the number of `value` in the order of `at`. `value` must be one of the parameter's values.

        Raises:
            ParameterError: The values cannot be counted.
        """
        raise ParameterError(f"{self.kind} is a continuum: its values have no numbers")

    def normalize(self, value: JsonValue) -> JsonValue:
        """Return a value, which must be one of the parameter's values, in the type that `sample` returns: an integer as 3, not 3.0."""
        return value

    @property
    def has_unit(self) -> bool:
        """Whether the values can be mapped to and from [0, 1], so that `from_unit` and `to_unit` can be used."""
        return True

    def from_unit(self, unit: float) -> JsonValue:
        """Map `unit` in [0, 1] to a value, in the order of the values.

        This is the inverse of the distribution function: a uniform random `unit` gives the distribution of `sample`.
        Methods on the unit cube, such as low-discrepancy points and genetic operators, can therefore search every kind
        of parameter.

        Raises:
            ParameterError: `has_unit` is false.
        """
        size = self._counted()
        return self.at(min(int(unit * size), size - 1))

    def to_unit(self, value: object) -> float:
        """Return a number in [0, 1] that `from_unit` maps to `value`.

        If the values can be counted, they divide [0, 1] into intervals of equal or different length, and the result is the middle of
        the interval of `value`. For real numbers, and for more than 2^50 values, `from_unit` returns `value` only up to rounding.

        Raises:
            ParameterError: `has_unit` is false.
        """
        return (self.index(value) + 0.5) / self._counted()

    def _counted(self) -> int:
        if self.size is None:
            raise ParameterError(f"{self.kind} is continuous: its class must override `to_unit` and `from_unit`")
        return self.size

    @abstractmethod
    def grid(self) -> Sequence[JsonValue]:
        """Return the values for a grid search, ascending or in the written order, without duplicates.

        Raises:
            ParameterError: The parameter is continuous and has no step or count.
        """


def read_bounds(kind: str, value: object) -> tuple[object, object]:
    """Return the two elements of the list `[low, high]`, without checking them.

    Args:
        kind: The kind of the parameter, for the error message.
        value: The list.

    Raises:
        ParameterError: `value` is not a list of two elements.
    """
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ParameterError(f"{kind} needs [low, high], found {show(value)}")
    return value[0], value[1]


def check_count(kind: str, count: object) -> None:
    """Raise `ParameterError` unless `count`, the number of grid values, is None or an integer of at least 2.

    Args:
        kind: The kind of the parameter, for the error message.
        count: The value to check.
    """
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 2):
        raise ParameterError(f"{kind} needs count as an integer >= 2 (grid points), found {show(count)}")
