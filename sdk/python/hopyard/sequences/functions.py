"""The functions in sequences, with exact parameters and a symbolic test of equality.

Two functions are `same` if they agree at every position. The origin from which positions count, the order of parameters and
extracted factors do not matter. `same` never returns True for functions that differ. It may return False for equal functions, for
example two cosines with opposite amplitudes. Values are then compared one by one, which is slower but equally exact.
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
    """A function from positions to values, defined from a start position on."""

    @abstractmethod
    def value(self, position: int) -> JsonValue:
        """Return the value at `position`. A number is the double nearest to the exact value."""

    @abstractmethod
    def same(self, other: Function) -> bool:
        """Return whether both functions are equal wherever they are defined, based on their parameters."""

    @property
    def constant(self) -> bool:
        """Whether all values are equal."""
        return False


@dataclass(frozen=True)
class Fixed(Function):
    """A constant that is not a number."""

    held: JsonValue

    def value(self, position: int) -> JsonValue:
        """Return the constant."""
        return self.held

    def same(self, other: Function) -> bool:
        """Compare the JSON values."""
        return isinstance(other, Fixed) and token(self.held) == token(other.held)

    @property
    def constant(self) -> bool:
        """Always True."""
        return True


@dataclass(frozen=True)
class LinearFunction(Function):
    """start + slope * position; used for constants, warm-ups and ramps."""

    start: Fraction
    slope: Fraction = Fraction(0)

    @classmethod
    def through(cls, position: int, value: Fraction, slope: Fraction) -> LinearFunction:
        """Return the line that has `value` at `position`."""
        return cls(value - slope * position, slope)

    def value(self, position: int) -> JsonValue:
        """Return the value at `position`, computed exactly and rounded to the nearest double."""
        return rounded(self.start + self.slope * position if self.slope else self.start)

    def same(self, other: Function) -> bool:
        """Compare start and slope."""
        return self == other

    @property
    def constant(self) -> bool:
        """True if the slope is 0."""
        return not self.slope


@dataclass(frozen=True)
class Power(Function):
    """base + (factor + slope * k) * gamma^k, where k = position - origin >= 0, gamma > 0 and gamma != 1."""

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
        """Compare base and gamma, and the factors converted to the same origin."""
        if not isinstance(other, Power) or (self.base, self.gamma) != (other.base, other.gamma):
            return False
        first, second = sorted((self, other), key=lambda function: function.origin)
        shift = second.origin - first.origin
        power = first.gamma**shift
        return (second.factor, second.slope) == ((first.factor + first.slope * shift) * power, first.slope * power)


@dataclass(frozen=True)
class Level(Function):
    """factor * gamma^times at every position; the constant value of a schedule after many steps."""

    factor: Fraction
    gamma: Fraction
    times: int

    def value(self, position: int) -> JsonValue:
        """Return the value at `position`, computed exactly or to 60 digits, and rounded to the nearest double."""
        return Power(0, Fraction(0), self.factor, Fraction(0), self.gamma).value(self.times)

    def same(self, other: Function) -> bool:
        """Compare the parameters."""
        return self == other

    @property
    def constant(self) -> bool:
        """Always True."""
        return True


def level(factor: Fraction, gamma: Fraction, times: int) -> Function:
    """Return a `Level`, or an exact constant if `times` is small. The cost does not depend on `times`."""
    return LinearFunction(factor * gamma**times) if times <= _SMALL else Level(factor, gamma, times)


def power(origin: int, base: Fraction, factor: Fraction, slope: Fraction, gamma: Fraction) -> Function:
    """Return a `Power`, or a `LinearFunction` if gamma is 1, or if factor and slope are 0."""
    if gamma == 1:
        return LinearFunction.through(origin, base + factor, slope)
    return Power(origin, base, factor, slope, gamma) if factor or slope else LinearFunction(base)


@dataclass(frozen=True)
class Wave(Function):
    """middle + swing * cos(pi * turn * (position - origin)), where `turn` is in half turns per position, 0 < turn <= 1."""

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
        """Compare middle, swing and turn. The origins must differ by full turns."""
        return (
            isinstance(other, Wave)
            and (self.middle, self.swing, self.turn) == (other.middle, other.swing, other.turn)
            and self.turn * (self.origin - other.origin) % 2 == 0
        )


def wave(origin: int, middle: Fraction, swing: Fraction, turn: Fraction) -> Function:
    """Return a `Wave`, or a constant if the swing is 0."""
    return Wave(origin, middle, swing, turn) if swing else LinearFunction(middle)


@dataclass(frozen=True)
class Root(Function):
    """last + drop * ((zero - position) / length)^exponent up to the position `zero`; exponent > 0 and exponent != 1."""

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
        """Compare zero, last, the exponent, and drop^d / length^n for the exponent n/d."""
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
    """Return a `Root`, or a `LinearFunction` if the exponent is 1 or the drop is 0."""
    if not drop:
        return LinearFunction(last)
    return (
        Root(zero, length, last, drop, exponent)
        if exponent != 1
        else LinearFunction.through(zero, last, -drop / length)
    )


@dataclass(frozen=True)
class SlowedFunction(Function):
    """Another function (`inner`) whose argument increases by 1 every `every` positions."""

    inner: Function
    every: int

    def value(self, position: int) -> JsonValue:
        """Return the value of `inner` at `position` // `every`."""
        return self.inner.value(position // self.every)

    def same(self, other: Function) -> bool:
        """Compare `every` and the inner functions."""
        return isinstance(other, SlowedFunction) and self.every == other.every and self.inner.same(other.inner)
