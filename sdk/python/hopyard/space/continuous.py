"""Parameters with real values: uniform (continuous or with a step) and log-uniform."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import ClassVar, Self, cast

from hopyard.space.errors import ParameterError
from hopyard.space.parameter import Parameter, check_count, read_bounds
from hopyard.space.rng_streams import below
from hopyard.space.values import JsonValue, is_number, show


@dataclass(frozen=True)
class Uniform(Parameter):
    """A real number with a uniform distribution over [low, high].

    Attributes:
        low: Smallest value, included.
        high: Largest value, included; low < high.
        step: If given, the values are low, low + step, low + 2 step, and so on up to high. They are computed in decimal
            arithmetic: 0.1, 0.2, 0.3, never 0.30000000000000004.
        count: If given, a grid has this many evenly spaced values (>= 2), both ends included. It does not affect
            sampling.
    """

    low: float
    high: float
    step: float | None = None
    count: int | None = None

    kind: ClassVar[str] = "uniform"
    options: ClassVar[tuple[str, ...]] = ("step", "count")

    def __post_init__(self) -> None:
        """Check the fields, and convert the bounds and the step to floats.

        Raises:
            ParameterError: A bound is not a finite number, low >= high, or step or count is invalid; or both are given.
        """
        _make_floats(self, self.kind)
        check_count(self.kind, self.count)
        if self.step is None:
            return
        if self.count is not None:
            raise ParameterError("uniform takes step or count, not both: a step already says what the grid is")
        if not is_number(self.step) or not 0 < self.step <= self.high - self.low:
            raise ParameterError(f"uniform needs 0 < step <= high - low, found {show(self.step)}")
        object.__setattr__(self, "step", float(self.step))

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Create the parameter from `{uniform: [low, high], step: s}` or `{uniform: [low, high], count: n}`.

        Args:
            value: The list `[low, high]`.
            options: The other keys: `step` or `count`, both optional.

        Raises:
            ParameterError: A value is invalid.
        """
        low, high = read_bounds(cls.kind, value)
        return cls(
            cast(float, low),
            cast(float, high),
            cast("float | None", options.get("step")),
            cast(int, options.get("count")),
        )

    def to_data(self) -> JsonValue:
        """Return the written form, a mapping such as `{uniform: [low, high], step: s}`."""
        data: dict[str, JsonValue] = {self.kind: [self.low, self.high]}
        if self.step is not None:
            data["step"] = self.step
        if self.count is not None:
            data["count"] = self.count
        return data

    def sample(self, rng: random.Random) -> float:
        """Draw a value. With a step, all steps are equally likely; otherwise the distribution is uniform."""
        if self.step is not None:
            return self.at(below(rng, self._steps() + 1))
        return self.from_unit(rng.random())

    def contains(self, value: object) -> bool:
        """Return whether `value` is a number in [low, high]; with a step, it must also be at most 1e-9 steps from low + n * step."""
        if not is_number(value) or not self.low <= (number := cast(float, value)) <= self.high:
            return False
        if self.step is None:
            return True
        index = round((number - self.low) / self.step)
        return abs(self.at(index) - number) <= 1e-9 * self.step

    @property
    def size(self) -> int | None:
        """The number of values if there is a step, else None (the values cannot be counted)."""
        return None if self.step is None else self._steps() + 1

    def at(self, index: int) -> float:
        """Return low + `index` * step, computed in decimal arithmetic.

        Args:
            index: The number of the step, 0 <= index < size.

        Raises:
            ParameterError: The parameter has no step.
        """
        if self.step is None:
            raise ParameterError("uniform without a step is a continuum: its values have no numbers")
        return float(_exact(self.low) + index * _exact(self.step))

    def index(self, value: object) -> int:
        """Return the number of the step nearest to `value`: 0 for low, 1 for low + step, and so on.

        `value` must be a number in [low, high]; this is not checked.

        Raises:
            ParameterError: The parameter has no step.
        """
        if self.step is None:
            return super().index(value)
        return round((cast(float, value) - self.low) / self.step)

    def from_unit(self, unit: float) -> float:
        """Map `unit` in [0, 1] linearly to [low, high].

        With a step, the values divide [0, 1] into intervals of equal length; return the value in whose interval `unit` is.
        """
        if self.step is not None:
            return cast(float, super().from_unit(unit))
        return min(self.high, max(self.low, self.low + (self.high - self.low) * unit))

    def to_unit(self, value: object) -> float:
        """Map `value` linearly from [low, high] to [0, 1]. `value` must be one of the parameter's values; this is not checked.

        With a step, the values divide [0, 1] into intervals of equal length; return the middle of the interval of `value`.
        """
        if self.step is not None:
            return super().to_unit(value)
        return (cast(float, value) - self.low) / (self.high - self.low)

    def grid(self) -> Sequence[float]:
        """Return the values for a grid search, ascending: all steps, or `count` evenly spaced values.

        Raises:
            ParameterError: The parameter has neither step nor count.
        """
        if self.step is not None:
            return [self.at(index) for index in range(self._steps() + 1)]
        if self.count is None:
            raise ParameterError(f"{self.kind} needs count or step for a grid, found neither")
        low, width = _exact(self.low), _exact(self.high) - _exact(self.low)
        values = (float(low + width * index / (self.count - 1)) for index in range(self.count))
        return list(dict.fromkeys(values))

    def _steps(self) -> int:
        return int((_exact(self.high) - _exact(self.low)) // _exact(cast(float, self.step)))


@dataclass(frozen=True)
class LogUniform(Parameter):
    """A positive real number with a uniformly distributed logarithm: each decade is equally likely.

    Attributes:
        low: Smallest value, included; > 0.
        high: Largest value, included; low < high.
        count: If given, a grid has this many values (>= 2) in geometric progression, both bounds included. It does not
            affect sampling.
    """

    low: float
    high: float
    count: int | None = None

    kind: ClassVar[str] = "loguniform"
    options: ClassVar[tuple[str, ...]] = ("count",)

    def __post_init__(self) -> None:
        """Check the fields, and convert the bounds to floats.

        Raises:
            ParameterError: A bound is not a finite positive number, low >= high, or count is invalid.
        """
        _make_floats(self, self.kind, positive=True)
        check_count(self.kind, self.count)

    @classmethod
    def from_data(cls, value: object, options: Mapping[str, object]) -> Self:
        """Create the parameter from `{loguniform: [low, high], count: n}`.

        Args:
            value: The list `[low, high]`.
            options: The other keys: `count`, optional.

        Raises:
            ParameterError: A value is invalid.
        """
        low, high = read_bounds(cls.kind, value)
        return cls(cast(float, low), cast(float, high), cast(int, options.get("count")))

    def to_data(self) -> JsonValue:
        """Return the written form, a mapping such as `{loguniform: [low, high], count: n}`."""
        data: dict[str, JsonValue] = {self.kind: [self.low, self.high]}
        if self.count is not None:
            data["count"] = self.count
        return data

    def sample(self, rng: random.Random) -> float:
        """Draw a value whose logarithm is uniformly distributed."""
        return self._between(rng.random())

    def from_unit(self, unit: float) -> float:
        """Map `unit` in [0, 1] to [low, high], linearly in the logarithm."""
        return self._between(unit)

    def to_unit(self, value: object) -> float:
        """Map `value` from [low, high] to [0, 1], linearly in the logarithm; the inverse of `from_unit`."""
        low, high = math.log(self.low), math.log(self.high)
        # Bounds that differ only by one rounding error can have equal logarithms.
        return min(1.0, max(0.0, (math.log(cast(float, value)) - low) / (high - low))) if high > low else 0.0

    def contains(self, value: object) -> bool:
        """Return whether `value` is a number in [low, high]."""
        return is_number(value) and self.low <= cast(float, value) <= self.high

    @property
    def size(self) -> int | None:
        """Always None: the values are continuous and cannot be counted."""
        return None

    def at(self, index: int) -> float:
        """Raise `ParameterError`: the values are continuous, so there is no value number `index`."""
        raise ParameterError("loguniform is a continuum: its values have no numbers")

    def grid(self) -> Sequence[float]:
        """Return the values for a grid search: `count` values in geometric progression, ascending, without duplicates.

        Values between the bounds are rounded to 12 significant digits, so that powers of ten are exact.

        Raises:
            ParameterError: The parameter has no count.
        """
        if self.count is None:
            raise ParameterError(f"{self.kind} needs count for a grid, found none")
        last = self.count - 1
        inner = (self._clamp(float(f"{self._between(index / last):.12g}")) for index in range(1, last))
        return list(dict.fromkeys([self.low, *inner, self.high]))

    def _between(self, fraction: float) -> float:
        low, high = math.log(self.low), math.log(self.high)
        return self._clamp(math.exp(low + (high - low) * fraction))

    def _clamp(self, value: float) -> float:
        # exp(log(x)) can leave the interval by a rounding error.
        return min(self.high, max(self.low, value))


def _make_floats(parameter: Uniform | LogUniform, kind: str, *, positive: bool = False) -> None:
    low, high = parameter.low, parameter.high
    found = show([low, high])
    if not (is_number(low) and is_number(high)):
        raise ParameterError(f"{kind} needs finite numbers [low, high], found {found}")
    if positive and low <= 0:
        raise ParameterError(f"{kind} needs low > 0, found {found}")
    if low >= high:
        raise ParameterError(f"{kind} needs low < high, found {found}")
    try:
        low, high = float(low), float(high)
    except OverflowError:
        raise ParameterError(f"{kind} needs bounds that a double can hold, found {found}") from None
    if not low < high or not math.isfinite(high - low):
        raise ParameterError(f"{kind} needs bounds whose distance a double can hold, found {found}")
    object.__setattr__(parameter, "low", low)
    object.__setattr__(parameter, "high", high)


def _exact(value: float) -> Fraction:
    # Use the decimal number that the user wrote instead of its nearest binary number.
    return Fraction(Decimal(repr(value)))
