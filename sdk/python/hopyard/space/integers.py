"""Parameters with integer values: uniform (all values or with a step) and log-uniform."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self, cast

from hopyard.space.errors import ParameterError
from hopyard.space.parameter import Parameter, check_count, read_bounds
from hopyard.space.rng_streams import below
from hopyard.space.values import JsonValue, is_number, show

_LARGEST = 2**53
"""Largest magnitude of a bound. Above it, a double, and therefore JSON in many languages, cannot represent every integer."""


@dataclass(frozen=True)
class IntUniform(Parameter):
    """An integer with a uniform distribution over the values low, low + step, low + 2 step, and so on up to high.

    Attributes:
        low: Smallest value, included.
        high: Upper bound, included if high - low is a multiple of the step; low < high; magnitudes of both bounds are at most 2^53.
        step: Distance between values; >= 1.
        count: If given, a grid has this many evenly spaced, rounded values (>= 2), or fewer if rounding produces
            duplicates; only with step 1. None: a grid has all values. It does not affect sampling.
    """

    low: int
    high: int
    step: int = 1
    count: int | None = None

    kind: ClassVar[str] = "int"
    options: ClassVar[tuple[str, ...]] = ("step", "count")

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ParameterError: A bound, the step or count is invalid, or both a step and count are given.
        """
        _check_bounds(self.kind, self.low, self.high)
        check_count(self.kind, self.count)
        if not _is_int(self.step) or not 1 <= self.step <= self.high - self.low:
            raise ParameterError(f"int needs step as an integer, 1 <= step <= high - low, found {show(self.step)}")
        if self.count is not None and self.step != 1:
            raise ParameterError("int takes step or count, not both: a step already says what the grid is")

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Create the parameter from `{int: [low, high], step: s}` or `{int: [low, high], count: n}`.

        Args:
            value: The list `[low, high]`.
            options: The other keys: `step` or `count`, both optional.

        Raises:
            ParameterError: A value is invalid.
        """
        low, high = read_bounds(cls.kind, value)
        return cls(cast(int, low), cast(int, high), cast(int, options.get("step", 1)), cast(int, options.get("count")))

    def to_data(self) -> JsonValue:
        """Return the written form, a mapping such as `{int: [low, high], step: s}`."""
        data: dict[str, JsonValue] = {self.kind: [self.low, self.high]}
        if self.step != 1:
            data["step"] = self.step
        if self.count is not None:
            data["count"] = self.count
        return data

    def sample(self, rng: random.Random) -> int:
        """Draw a value; all are equally likely."""
        return self.at(below(rng, self.size))

    def contains(self, value: object) -> bool:
        """Return whether `value` is an integer (3.0 is one too) in [low, high] whose distance from low is a multiple of the step."""
        if not is_number(value) or not self.low <= (number := cast(float, value)) <= self.high:
            return False
        return number == int(number) and (int(number) - self.low) % self.step == 0

    @property
    def size(self) -> int:
        """The number of values: (high - low) // step + 1."""
        return (self.high - self.low) // self.step + 1

    def at(self, index: int) -> int:
        """Return low + `index` * step, for 0 <= index < size."""
        return self.low + self.step * index

    def normalize(self, value: JsonValue) -> int:
        """Return a value, which must be one of the parameter's values, as an int: 3 for 3.0."""
        return int(cast(float, value))

    def index(self, value: object) -> int:
        """Return the number of `value`, which must be one of the values: 0 for low, 1 for low + step, and so on."""
        return (int(cast(float, value)) - self.low) // self.step

    def grid(self) -> Sequence[int]:
        """Return the values for a grid search, ascending and without duplicates.

        They are all values if `count` is None, else `count` evenly spaced ones.
        """
        if self.count is None:
            return range(self.low, self.high + 1, self.step)
        width, last = self.high - self.low, self.count - 1
        # This integer arithmetic rounds halves up. Python's `round` would round them to the even neighbour.
        return list(dict.fromkeys(self.low + (2 * width * index + last) // (2 * last) for index in range(self.count)))


@dataclass(frozen=True)
class LogInt(Parameter):
    """A positive integer whose distribution is approximately log-uniform: small integers are more likely.

    The probability of n is the probability that a log-uniform real number on [low, high + 1) lies in [n, n + 1).

    Attributes:
        low: Smallest value, included; >= 1.
        high: Largest value, included; low < high <= 2^53.
        count: If given, a grid has this many values (>= 2) in geometric progression, rounded. Duplicates are removed,
            so there may be fewer. Otherwise a grid has all values. It does not affect sampling.
    """

    low: int
    high: int
    count: int | None = None

    kind: ClassVar[str] = "logint"
    options: ClassVar[tuple[str, ...]] = ("count",)

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ParameterError: A bound or count is invalid.
        """
        if _is_int(self.low) and self.low < 1:
            raise ParameterError(f"{self.kind} needs low >= 1, found {show([self.low, self.high])}")
        _check_bounds(self.kind, self.low, self.high)
        check_count(self.kind, self.count)

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Create the parameter from `{logint: [low, high], count: n}`.

        Args:
            value: The list `[low, high]`.
            options: The other keys: `count`, optional.

        Raises:
            ParameterError: A value is invalid.
        """
        low, high = read_bounds(cls.kind, value)
        return cls(cast(int, low), cast(int, high), cast(int, options.get("count")))

    def to_data(self) -> JsonValue:
        """Return the written form, a mapping such as `{logint: [low, high], count: n}`."""
        data: dict[str, JsonValue] = {self.kind: [self.low, self.high]}
        if self.count is not None:
            data["count"] = self.count
        return data

    def sample(self, rng: random.Random) -> int:
        """Draw a value: a log-uniform real number in [low, high + 1), rounded down."""
        return self.from_unit(rng.random())

    def from_unit(self, unit: float) -> int:
        """Map `unit` in [0, 1] to [low, high + 1], linearly in the logarithm, and round down; at most high."""
        low, high = math.log(self.low), math.log(self.high + 1)
        return min(self.high, max(self.low, int(math.exp(low + (high - low) * unit))))

    def to_unit(self, value: object) -> float:
        """Return the middle of the interval in [0, 1] that `from_unit` maps to `value`."""
        low, high = math.log(self.low), math.log(self.high + 1)
        middle = math.log(cast(float, value)) + math.log1p(1 / cast(float, value)) / 2
        return (middle - low) / (high - low)

    def contains(self, value: object) -> bool:
        """Return whether `value` is an integer (3.0 is one too) in [low, high]."""
        return is_number(value) and self.low <= cast(float, value) <= self.high and value == int(cast(float, value))

    @property
    def size(self) -> int:
        """The number of values: high - low + 1."""
        return self.high - self.low + 1

    def at(self, index: int) -> int:
        """Return low + `index`, for 0 <= index < size."""
        return self.low + index

    def normalize(self, value: JsonValue) -> int:
        """Return a value, which must be one of the parameter's values, as an int: 3 for 3.0."""
        return int(cast(float, value))

    def index(self, value: object) -> int:
        """Return the number of `value`, which must be one of the values: 0 for low, 1 for low + 1, and so on."""
        return int(cast(float, value)) - self.low

    def grid(self) -> Sequence[int]:
        """Return the values for a grid search, ascending and without duplicates.

        They are all values if `count` is None, else at most `count` of them in geometric progression.
        """
        if self.count is None:
            return range(self.low, self.high + 1)
        ratio, last = self.high / self.low, self.count - 1
        inner = (min(self.high, math.floor(self.low * ratio ** (index / last) + 0.5)) for index in range(1, last))
        return list(dict.fromkeys([self.low, *inner, self.high]))


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_bounds(kind: str, low: object, high: object) -> None:
    found = show([low, high])
    if not (_is_int(low) and _is_int(high)):
        raise ParameterError(f"{kind} needs integers [low, high], found {found}")
    first, last = cast(int, low), cast(int, high)
    if first >= last:
        raise ParameterError(f"{kind} needs low < high, found {found}")
    if abs(first) > _LARGEST or abs(last) > _LARGEST:
        raise ParameterError(f"{kind} needs bounds within +-2^53, found {found}")
