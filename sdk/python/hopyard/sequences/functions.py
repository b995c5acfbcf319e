"""The functions of which sequences consist, with exact parameters and a symbolic test of equality.

Two functions are the same (`Function.same`) if their values are equal at every position. The representation does not
matter: the origin from which positions count, the order of parameters, or extracted factors. `same` never returns True
for functions that differ. It may return False for equal functions, for example two cosines with opposite amplitudes.
The callers then compare values one by one, which is slower but equally exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from hopyard.sequences.rational import DIGITS, Exact, JsonValue, cosine, rounded, to_decimal, token

_SMALL: Final = 64
"""Powers up to this exponent are computed as fractions, higher ones to 60 digits."""


class Function(ABC):
    """A function from positions to values of a hyperparameter. It is used from some position on."""

    @abstractmethod
    def value(self, position: int) -> JsonValue:
        """Return the value at `position`. A number is the double nearest to the exact value."""

    @abstractmethod
    def same(self, other: Function) -> bool:
        """Return True if the parameters prove that both functions have equal values wherever both are defined.

        False means that they differ, or that equality cannot be proved from the parameters.
        """

    @property
    def constant(self) -> bool:
        """True if the value is equal at all positions."""
        return False


@dataclass(frozen=True)
class Fixed(Function):
    """A constant that is not a number.

    Attributes:
        held: The constant, a JSON value.
    """

    held: JsonValue

    def value(self, position: int) -> JsonValue:
        """Return the constant, at every position."""
        return self.held

    def same(self, other: Function) -> bool:
        """Return True if the other function is the same JSON constant."""
        return isinstance(other, Fixed) and token(self.held) == token(other.held)

    @property
    def constant(self) -> bool:
        """Always True."""
        return True


@dataclass(frozen=True)
class LinearFunction(Function):
    """The function start + slope * position. It represents numeric constants, warm-ups and linear changes.

    Attributes:
        start: The value at position 0.
        slope: The change per position; 0: a constant.
    """

    start: Fraction
    slope: Fraction = Fraction(0)

    @classmethod
    def through(cls, position: int, value: Fraction, slope: Fraction) -> LinearFunction:
        """Return the linear function with the given slope that has `value` at `position`."""
        return cls(value - slope * position, slope)

    def value(self, position: int) -> JsonValue:
        """Return the value at `position`, computed exactly and rounded to the nearest double."""
        return rounded(self.start + self.slope * position if self.slope else self.start)

    def same(self, other: Function) -> bool:
        """Return True if the other function is linear with equal start and slope."""
        return self == other

    @property
    def constant(self) -> bool:
        """True if the slope is 0."""
        return not self.slope


@dataclass(frozen=True)
class Power(Function):
    """The function base + (factor + slope * k) * gamma^k, where k = position - origin, 0 or more.

    Attributes:
        origin: The position at which k is 0.
        base: The constant part.
        factor: The factor of the power at k = 0.
        slope: The change of the factor per position.
        gamma: The base of the power, greater than 0 and not 1.
    """

    origin: int
    base: Fraction
    factor: Fraction
    slope: Fraction
    gamma: Fraction

    def value(self, position: int) -> JsonValue:
        """Return the value at `position`, computed exactly or to 60 digits, and rounded to the nearest double."""
        k = position - self.origin
        outer = self.factor + self.slope * k
        if k <= _SMALL:
            return rounded(self.base + outer * self.gamma**k)
        power = DIGITS.power(to_decimal(self.gamma), Decimal(k))
        return rounded(DIGITS.add(to_decimal(self.base), DIGITS.multiply(to_decimal(outer), power)))

    def same(self, other: Function) -> bool:
        """Return True if the other function is a `Power` with equal values at every position.

        It compares base and gamma, and the factors after conversion to the same origin.
        """
        if not isinstance(other, Power) or (self.base, self.gamma) != (other.base, other.gamma):
            return False
        first, second = sorted((self, other), key=lambda function: function.origin)
        shift = second.origin - first.origin
        power = first.gamma**shift
        return (second.factor, second.slope) == ((first.factor + first.slope * shift) * power, first.slope * power)


@dataclass(frozen=True)
class Level(Function):
    """The constant factor * gamma^times: the value of a sequence (`Step` or `MultiStep`) after many multiplications by gamma.

    Attributes:
        factor: The initial value of the sequence.
        gamma: The factor by which the sequence multiplies its value at each change.
        times: The number of changes so far.
    """

    factor: Fraction
    gamma: Fraction
    times: int

    def value(self, position: int) -> JsonValue:
        """Return the constant, computed exactly or to 60 digits, and rounded to the nearest double."""
        return Power(0, Fraction(0), self.factor, Fraction(0), self.gamma).value(self.times)

    def same(self, other: Function) -> bool:
        """Return True if the other function is a `Level` with equal parameters."""
        return self == other

    @property
    def constant(self) -> bool:
        """Always True."""
        return True


def level(factor: Fraction, gamma: Fraction, times: int) -> Function:
    """Return the constant factor * gamma^times: a `LinearFunction` if `times` is at most `_SMALL`, else a `Level`.

    A `Level` does not compute the exact power, whose fraction would have too many digits.
    """
    return LinearFunction(factor * gamma**times) if times <= _SMALL else Level(factor, gamma, times)


def power(origin: int, base: Fraction, factor: Fraction, slope: Fraction, gamma: Fraction) -> Function:
    """Return the function base + (factor + slope * k) * gamma^k, where k = position - origin, in its simplest class.

    It is a `LinearFunction` if gamma is 1 or if factor and slope are 0, else a `Power`.
    """
    if gamma == 1:
        return LinearFunction.through(origin, base + factor, slope)
    return Power(origin, base, factor, slope, gamma) if factor or slope else LinearFunction(base)


@dataclass(frozen=True)
class Wave(Function):
    """The function middle + swing * cos(pi * turn * (position - origin)).

    Attributes:
        origin: A position at which the cosine is 1.
        middle: The mean of the highest and the lowest value.
        swing: The amplitude.
        turn: The number of half periods per position, greater than 0 and at most 1.
    """

    origin: int
    middle: Fraction
    swing: Fraction
    turn: Fraction

    def value(self, position: int) -> JsonValue:
        """Return the value at `position`, computed exactly or to 60 digits, and rounded to the nearest double."""
        factor: Exact = cosine(self.turn * (position - self.origin))
        if isinstance(factor, Fraction):
            return rounded(self.middle + self.swing * factor)
        return rounded(DIGITS.add(to_decimal(self.middle), DIGITS.multiply(to_decimal(self.swing), factor)))

    def same(self, other: Function) -> bool:
        """Return True if the other function is a `Wave` with equal middle, swing and turn, and the origins differ by full periods."""
        return (
            isinstance(other, Wave)
            and (self.middle, self.swing, self.turn) == (other.middle, other.swing, other.turn)
            and self.turn * (self.origin - other.origin) % 2 == 0
        )


def wave(origin: int, middle: Fraction, swing: Fraction, turn: Fraction) -> Function:
    """Return the function middle + swing * cos(pi * turn * (position - origin)): a `Wave`, or a constant if the swing is 0."""
    return Wave(origin, middle, swing, turn) if swing else LinearFunction(middle)


@dataclass(frozen=True)
class Root(Function):
    """The function last + drop * ((zero - position) / length)^exponent, used up to the position `zero`.

    Attributes:
        zero: The position at which the value is `last`.
        length: The number of positions from the first one, where the value is `last + drop`, to `zero`.
        last: The value at `zero`.
        drop: The difference between the first and the last value.
        exponent: The exponent, greater than 0 and not 1.
    """

    zero: int
    length: int
    last: Fraction
    drop: Fraction
    exponent: Fraction

    def value(self, position: int) -> JsonValue:
        """Return the value at `position`, computed exactly or to 60 digits, and rounded to the nearest double."""
        part = Fraction(self.zero - position, self.length)
        if self.exponent.denominator == 1:
            return rounded(self.last + self.drop * part ** int(self.exponent))
        if not part:
            return rounded(self.last)
        power = DIGITS.power(to_decimal(part), to_decimal(self.exponent))
        return rounded(DIGITS.add(to_decimal(self.last), DIGITS.multiply(to_decimal(self.drop), power)))

    def same(self, other: Function) -> bool:
        """Return True if the other function is a `Root` that is proved to have equal values at every position.

        Both must have equal `zero`, `last` and `exponent`. With the exponent as a fraction n/d, both must also have equal
        drop^d / length^n. If n or d is greater than `_SMALL`, all parameters must be equal, so False can also mean "not proved".
        """
        if not isinstance(other, Root):
            return False
        if (self.zero, self.last, self.exponent) != (other.zero, other.last, other.exponent):
            return False
        if (self.drop > 0) != (other.drop > 0):
            return False
        n, d = self.exponent.numerator, self.exponent.denominator
        if n > _SMALL or d > _SMALL:  # For an unusual exponent, compare the parameters only.
            return self == other
        return (self.drop / other.drop) ** d == Fraction(self.length, other.length) ** n


def root(zero: int, length: int, last: Fraction, drop: Fraction, exponent: Fraction) -> Function:
    """Return the function last + drop * ((zero - position) / length)^exponent in its simplest class.

    It is a `LinearFunction` if the exponent is 1 or the drop is 0, else a `Root`.
    """
    if not drop:
        return LinearFunction(last)
    return (
        Root(zero, length, last, drop, exponent)
        if exponent != 1
        else LinearFunction.through(zero, last, -drop / length)
    )


@dataclass(frozen=True)
class SlowedFunction(Function):
    """A function whose argument increases by 1 only after several positions.

    Attributes:
        inner: The original function.
        every: The number of positions after which its argument increases by 1.
    """

    inner: Function
    every: int

    def value(self, position: int) -> JsonValue:
        """Return the value of `inner` at `position` // `every`."""
        return self.inner.value(position // self.every)

    def same(self, other: Function) -> bool:
        """Return True if the other function is a `SlowedFunction` with equal `every` and the same inner function."""
        return isinstance(other, SlowedFunction) and self.every == other.every and self.inner.same(other.inner)
