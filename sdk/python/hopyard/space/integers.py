"""Parameters with integer values: uniform (all or in steps) and log-uniform."""

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
"""Bounds stay within +-2^53: beyond it a double, and so JSON in many languages, cannot tell neighbours apart."""


@dataclass(frozen=True)
class IntUniform(Parameter):
    """An integer, each as likely as any other.

    Attributes:
        low: smallest value, included.
        high: largest value, included; low < high, both within +-2^53.
        step: only low, low + step, ... up to high are values; >= 1.
        count: when given, a grid takes this many evenly spaced values (>= 2), rounded; without it a grid takes all.
    """

    low: int
    high: int
    step: int = 1
    count: int | None = None

    kind: ClassVar[str] = "int"
    options: ClassVar[tuple[str, ...]] = ("step", "count")

    def __post_init__(self) -> None:
        """Check the bounds."""
        _check_bounds(self.kind, self.low, self.high)
        check_count(self.kind, self.count)
        if not _is_int(self.step) or not 1 <= self.step <= self.high - self.low:
            raise ParameterError(f"int needs step as an integer, 1 <= step <= high - low, found {show(self.step)}")
        if self.count is not None and self.step != 1:
            raise ParameterError("int takes step or count, not both: a step already says what the grid is")

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Read `{int: [low, high], step: s}` or `{int: [low, high], count: n}`."""
        low, high = read_bounds(cls.kind, value)
        return cls(cast(int, low), cast(int, high), cast(int, options.get("step", 1)), cast(int, options.get("count")))

    def to_data(self) -> JsonValue:
        """The written form."""
        data: dict[str, JsonValue] = {self.kind: [self.low, self.high]}
        if self.step != 1:
            data["step"] = self.step
        if self.count is not None:
            data["count"] = self.count
        return data

    def sample(self, rng: random.Random) -> int:
        """A uniform draw."""
        return self.at(below(rng, self.size))

    def contains(self, value: object) -> bool:
        """An integer (3.0 is one) within the bounds and on a step."""
        if not is_number(value) or not self.low <= (number := cast(float, value)) <= self.high:
            return False
        return number == int(number) and (int(number) - self.low) % self.step == 0

    @property
    def size(self) -> int:
        """How many integers."""
        return (self.high - self.low) // self.step + 1

    def at(self, index: int) -> int:
        """Counted from `low`."""
        return self.low + self.step * index

    def index(self, value: object) -> int:
        """Counted from `low`."""
        return (int(cast(float, value)) - self.low) // self.step

    def grid(self) -> Sequence[int]:
        """All values, or `count` of them."""
        if self.count is None:
            return range(self.low, self.high + 1, self.step)
        width, last = self.high - self.low, self.count - 1
        # Integer arithmetic that rounds halves up: Python's round would take the even neighbour.
        return list(dict.fromkeys(self.low + (2 * width * index + last) // (2 * last) for index in range(self.count)))


@dataclass(frozen=True)
class LogInt(Parameter):
    """A positive integer, small ones more likely: n has the probability that a log-uniform real falls in [n, n + 1).

    Attributes:
        low: smallest value, included; >= 1.
        high: largest value, included; low < high <= 2^53.
        count: when given, a grid takes this many values (>= 2) in geometric progression, rounded, none twice (so there
            may be fewer); without it a grid takes all.
    """

    low: int
    high: int
    count: int | None = None

    kind: ClassVar[str] = "logint"
    options: ClassVar[tuple[str, ...]] = ("count",)

    def __post_init__(self) -> None:
        """Check the bounds."""
        if _is_int(self.low) and self.low < 1:
            raise ParameterError(f"{self.kind} needs low >= 1, found {show([self.low, self.high])}")
        _check_bounds(self.kind, self.low, self.high)
        check_count(self.kind, self.count)

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Read `{logint: [low, high], count: n}`."""
        low, high = read_bounds(cls.kind, value)
        return cls(cast(int, low), cast(int, high), cast(int, options.get("count")))

    def to_data(self) -> JsonValue:
        """The written form."""
        data: dict[str, JsonValue] = {self.kind: [self.low, self.high]}
        if self.count is not None:
            data["count"] = self.count
        return data

    def sample(self, rng: random.Random) -> int:
        """A log-uniform draw."""
        return self.from_unit(rng.random())

    def from_unit(self, unit: float) -> int:
        """Between low and high + 1 in proportion to the logarithm, rounded down."""
        low, high = math.log(self.low), math.log(self.high + 1)
        return min(self.high, max(self.low, int(math.exp(low + (high - low) * unit))))

    def to_unit(self, value: object) -> float:
        """The middle of the part that `from_unit` gives the value for."""
        low, high = math.log(self.low), math.log(self.high + 1)
        middle = math.log(cast(float, value)) + math.log1p(1 / cast(float, value)) / 2
        return (middle - low) / (high - low)

    def contains(self, value: object) -> bool:
        """An integer (3.0 is one) within the bounds."""
        return is_number(value) and self.low <= cast(float, value) <= self.high and value == int(cast(float, value))

    @property
    def size(self) -> int:
        """How many integers."""
        return self.high - self.low + 1

    def at(self, index: int) -> int:
        """Counted from `low`."""
        return self.low + index

    def index(self, value: object) -> int:
        """Counted from `low`."""
        return int(cast(float, value)) - self.low

    def grid(self) -> Sequence[int]:
        """All values, or `count` of them."""
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
