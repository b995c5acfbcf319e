"""The interface of a hyperparameter's set of values."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from hopyard.space.errors import ParameterError
from hopyard.space.values import JsonValue, show


class Parameter(ABC):
    """The values that one hyperparameter can have. Parameters are immutable and comparable, and use no global state.

    Each kind of parameter is a subclass. Its written form is a mapping with the key `kind` and the options of that
    kind, such as `{uniform: [0, 1], count: 5}`.
    """

    kind: ClassVar[str]
    """The key of the written form, such as `loguniform`."""

    options: ClassVar[tuple[str, ...]] = ()
    """Keys that are allowed in addition to `kind`."""

    @classmethod
    @abstractmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Create the parameter from its written form: `value` is the value of the key `kind`, and `options` are the other keys.

        Raises:
            ParameterError: The written form is wrong. The message names what was found and what is allowed.
        """

    @abstractmethod
    def to_data(self) -> JsonValue:
        """Return the written form. `parameter_from_data` reads it back as an equal parameter."""

    @abstractmethod
    def sample(self, rng: random.Random) -> JsonValue:
        """Draw one value, using no source of randomness except `rng`."""

    @abstractmethod
    def contains(self, value: object) -> bool:
        """Return whether `value` is one of the parameter's values (3 and 3.0 are equal, 1 and true are not)."""

    @property
    @abstractmethod
    def size(self) -> int | None:
        """The number of values, or None if they cannot be counted."""

    @abstractmethod
    def at(self, index: int) -> JsonValue:
        """Return value number `index`, 0 <= index < size, in a fixed order. Raises `ParameterError` if size is None."""

    def index(self, value: object) -> int:
        """Return the number of `value`, which is one of the parameter's values. `at(index(value))` is this value again.

        Raises:
            ParameterError: The values have no numbers.
        """
        raise ParameterError(f"{self.kind} is a continuum: its values have no numbers")

    @property
    def has_unit(self) -> bool:
        """Whether the values lie on one line, so that `from_unit` and `to_unit` can be used."""
        return True

    def from_unit(self, unit: float) -> JsonValue:
        """Return the value at the fraction `unit` (0 <= unit <= 1) of all values.

        This is the inverse of the distribution function: a uniform `unit` gives the same distribution as `sample`.
        Methods on the unit cube, such as low-discrepancy points and genetic operators, can therefore search every kind
        of parameter.
        """
        size = self._counted()
        return self.at(min(int(unit * size), size - 1))

    def to_unit(self, value: object) -> float:
        """Return the position of `value` in [0, 1]. If the values can be counted, it is the middle of the value's interval.

        `from_unit` maps it back, up to rounding for real numbers and for more than 2^50 values.
        """
        return (self.index(value) + 0.5) / self._counted()

    def _counted(self) -> int:
        if self.size is None:
            raise ParameterError(f"{self.kind} is a continuum: it says itself where its values lie")
        return self.size

    @abstractmethod
    def grid(self) -> Sequence[JsonValue]:
        """Return the values for a grid search, ascending or in the written order, without duplicates.

        Raises:
            ParameterError: The parameter is continuous and has no step or count.
        """


def read_bounds(kind: str, value: object) -> tuple[object, object]:
    """Return the two entries of `[low, high]`.

    Raises:
        ParameterError: `value` is not a list of two.
    """
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ParameterError(f"{kind} needs [low, high], found {show(value)}")
    return value[0], value[1]


def check_count(kind: str, count: object) -> None:
    """Raise an error unless the number of grid points is None or an integer of at least 2."""
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 2):
        raise ParameterError(f"{kind} needs count as an integer >= 2 (grid points), found {show(count)}")
