"""The functions that sequences are made of, each with exact parameters and a symbolic test of equality.

Two functions are `same` if they agree at every position, whatever they were written as: the origin of a clock, the order
of parameters and the factors pulled out do not matter. `same` may miss an equality (of two cosines with opposite
amplitudes, say), never invent one; positions are then compared one by one, which is slower and no less exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final

from hopyard.sequences.rational import DIGITS, Exact, JsonValue, cosine, rounded, to_decimal, token

_SMALL: Final = 64
"""Powers up to this one are computed as fractions; higher ones to 60 digits."""


class Function(ABC):
    """A value for each position from where it is defined."""

    @abstractmethod
    def value(self, position: int) -> JsonValue:
        """What the training gets at `position`: for a number, the double nearest to the exact one."""

    @abstractmethod
    def same(self, other: Function) -> bool:
        """Whether both are equal wherever they are defined, decided from their parameters."""

    @property
    def constant(self) -> bool:
        """Whether all its values are equal."""
        return False


@dataclass(frozen=True)
class Fixed(Function):
    """What is no number, for ever."""

    held: JsonValue

    def value(self, position: int) -> JsonValue:
        """The same everywhere."""
        return self.held

    def same(self, other: Function) -> bool:
        """Equal as JSON."""
        return isinstance(other, Fixed) and token(self.held) == token(other.held)

    @property
    def constant(self) -> bool:
        """Always."""
        return True


@dataclass(frozen=True)
class LinearFunction(Function):
    """start + slope * position: constants, warm-ups, ramps."""

    start: Fraction
    slope: Fraction = Fraction(0)

    @classmethod
    def through(cls, position: int, value: Fraction, slope: Fraction) -> LinearFunction:
        """The line that has `value` at `position`."""
        return cls(value - slope * position, slope)

    def value(self, position: int) -> JsonValue:
        """Rounded once."""
        return rounded(self.start + self.slope * position if self.slope else self.start)

    def same(self, other: Function) -> bool:
        """Equal start and slope."""
        return self == other

    @property
    def constant(self) -> bool:
        """Without a slope."""
        return not self.slope


@dataclass(frozen=True)
class Power(Function):
    """base + (factor + slope * k) * gamma^k, where k = position - origin >= 0; gamma > 0 and not 1."""

    origin: int
    base: Fraction
    factor: Fraction
    slope: Fraction
    gamma: Fraction

    def value(self, position: int) -> JsonValue:
        """Rounded once."""
        k = position - self.origin
        outer = self.factor + self.slope * k
        if k <= _SMALL:
            return rounded(self.base + outer * self.gamma**k)
        power = DIGITS.power(to_decimal(self.gamma), Decimal(k))
        return rounded(DIGITS.add(to_decimal(self.base), DIGITS.multiply(to_decimal(outer), power)))

    def same(self, other: Function) -> bool:
        """Equal base and gamma, and equal factors seen from the same origin."""
        if not isinstance(other, Power) or (self.base, self.gamma) != (other.base, other.gamma):
            return False
        first, second = sorted((self, other), key=lambda function: function.origin)
        shift = second.origin - first.origin
        power = first.gamma**shift
        return (second.factor, second.slope) == ((first.factor + first.slope * shift) * power, first.slope * power)


@dataclass(frozen=True)
class Level(Function):
    """factor * gamma^times at every position: where a schedule stands after many steps."""

    factor: Fraction
    gamma: Fraction
    times: int

    def value(self, position: int) -> JsonValue:
        """Rounded once."""
        return Power(0, Fraction(0), self.factor, Fraction(0), self.gamma).value(self.times)

    def same(self, other: Function) -> bool:
        """Written alike."""
        return self == other

    @property
    def constant(self) -> bool:
        """Always."""
        return True


def level(factor: Fraction, gamma: Fraction, times: int) -> Function:
    """A `Level`, or the exact constant after few steps. It costs the same after any number of them."""
    return LinearFunction(factor * gamma**times) if times <= _SMALL else Level(factor, gamma, times)


def power(origin: int, base: Fraction, factor: Fraction, slope: Fraction, gamma: Fraction) -> Function:
    """A `Power`, or the line that it is."""
    if gamma == 1:
        return LinearFunction.through(origin, base + factor, slope)
    return Power(origin, base, factor, slope, gamma) if factor or slope else LinearFunction(base)


@dataclass(frozen=True)
class Wave(Function):
    """middle + swing * cos(pi * turn * (position - origin)); 0 < turn <= 1 half turns a position."""

    origin: int
    middle: Fraction
    swing: Fraction
    turn: Fraction

    def value(self, position: int) -> JsonValue:
        """Rounded once."""
        factor: Exact = cosine(self.turn * (position - self.origin))
        if isinstance(factor, Fraction):
            return rounded(self.middle + self.swing * factor)
        return rounded(DIGITS.add(to_decimal(self.middle), DIGITS.multiply(to_decimal(self.swing), factor)))

    def same(self, other: Function) -> bool:
        """Equal middle, swing and turn, and origins that are whole turns apart."""
        return (
            isinstance(other, Wave)
            and (self.middle, self.swing, self.turn) == (other.middle, other.swing, other.turn)
            and self.turn * (self.origin - other.origin) % 2 == 0
        )


def wave(origin: int, middle: Fraction, swing: Fraction, turn: Fraction) -> Function:
    """A `Wave`, or the constant that it is."""
    return Wave(origin, middle, swing, turn) if swing else LinearFunction(middle)


@dataclass(frozen=True)
class Root(Function):
    """last + drop * ((zero - position) / length)^exponent up to the position `zero`; exponent > 0 and not 1."""

    zero: int
    length: int
    last: Fraction
    drop: Fraction
    exponent: Fraction

    def value(self, position: int) -> JsonValue:
        """Rounded once."""
        part = Fraction(self.zero - position, self.length)
        if self.exponent.denominator == 1:
            return rounded(self.last + self.drop * part ** int(self.exponent))
        if not part:
            return rounded(self.last)
        power = DIGITS.power(to_decimal(part), to_decimal(self.exponent))
        return rounded(DIGITS.add(to_decimal(self.last), DIGITS.multiply(to_decimal(self.drop), power)))

    def same(self, other: Function) -> bool:
        """Equal end and exponent, and an equal drop over an equal length: drop^d / length^n for the exponent n/d."""
        if not isinstance(other, Root):
            return False
        if (self.zero, self.last, self.exponent) != (other.zero, other.last, other.exponent):
            return False
        if (self.drop > 0) != (other.drop > 0):
            return False
        n, d = self.exponent.numerator, self.exponent.denominator
        if n > _SMALL or d > _SMALL:  # an unusual exponent: only what is written alike
            return self == other
        return (self.drop / other.drop) ** d == Fraction(self.length, other.length) ** n


def root(zero: int, length: int, last: Fraction, drop: Fraction, exponent: Fraction) -> Function:
    """A `Root`, or the line that it is."""
    if not drop:
        return LinearFunction(last)
    return (
        Root(zero, length, last, drop, exponent)
        if exponent != 1
        else LinearFunction.through(zero, last, -drop / length)
    )


@dataclass(frozen=True)
class SlowedFunction(Function):
    """Another function of a slower clock: it ticks once every `every` positions."""

    inner: Function
    every: int

    def value(self, position: int) -> JsonValue:
        """The inner value at the tick."""
        return self.inner.value(position // self.every)

    def same(self, other: Function) -> bool:
        """Equal functions of equal clocks."""
        return isinstance(other, SlowedFunction) and self.every == other.every and self.inner.same(other.inner)
