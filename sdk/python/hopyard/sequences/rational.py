"""Exact arithmetic with the decimal numbers that the user wrote. A result is rounded to a double only at the end."""

from __future__ import annotations

import decimal
import difflib
import functools
import json
import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeAlias

from hopyard.errors import InvalidInput

JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
Exact: TypeAlias = Fraction | Decimal
"""A rational number, or an irrational number to 60 digits."""

DIGITS: Final = decimal.Context(prec=60, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN)
"""Irrational values are computed to 60 digits, so that rounding to the 17 digits of a double is exact."""

_PI: Final = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
_WHOLE: Final = 2.0**53


class SequenceError(InvalidInput):
    """Raised if a sequence is invalid. The message names the field, the value that was found, and the allowed values.

    The arguments of the constructor are also its attributes.

    Attributes:
        path: The field, starting with the kind of the sequence: `("warmup", "then", "exponential", "gamma")`; empty: the
            error concerns the whole sequence.
        reason: What is wrong, as a message without the path.
    """

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        self.reason, self.path = reason, path
        text = ""
        for part in path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        super().__init__(f"{text}: {reason}" if text else reason)

    def inside(self, *outer: str | int) -> SequenceError:
        """Return the same error with the names of enclosing objects at the beginning of its path.

        Args:
            *outer: The names or list indices of the enclosing objects, outermost first.
        """
        return SequenceError(self.reason, (*outer, *self.path))


def is_number(value: object) -> bool:
    """Return True if `value` is a finite int or float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def fraction(value: float) -> Fraction:
    """Return the decimal number that the user wrote for `value`, exactly. For 0.1 it is 1/10, not the nearest binary number."""
    return Fraction(value) if isinstance(value, int) else Fraction(Decimal(repr(value)))


def to_decimal(value: Exact) -> Decimal:
    """Return the number `value` as a decimal: a fraction rounded to 60 digits, a decimal unchanged."""
    if isinstance(value, Decimal):
        return value
    return DIGITS.divide(Decimal(value.numerator), Decimal(value.denominator))


def rounded(value: Exact) -> int | float:
    """Return the double nearest to `value`. An integral value is returned as an int, so that a batch size remains an int.

    Raises:
        SequenceError: The value is too large for a double.
    """
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise SequenceError("its values grow beyond what a double can hold")
    return int(number) if number.is_integer() and abs(number) < _WHOLE else number


def token(value: JsonValue) -> object:
    """Return a hashable object that is equal for two JSON values exactly if they are equal: 1 and 1.0 are, 1 and true are not."""
    return value if is_number(value) else json.dumps(_by_value(value), sort_keys=True)


def _by_value(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_by_value(item) for item in value]
    return {key: _by_value(item) for key, item in value.items()} if isinstance(value, dict) else value


@functools.lru_cache(maxsize=65536)
def cosine(half_turns: Fraction) -> Exact:
    """Return cos(pi * half_turns): a `Fraction` if it is rational, else a `Decimal` to 60 digits."""
    angle = half_turns % 2
    if angle > 1:
        angle = 2 - angle
    if angle > Fraction(1, 2):
        found = cosine(1 - angle)
        return -found if isinstance(found, Fraction) else found.copy_negate()  # Unary minus would round to 28 digits.
    # These are the only angles with a rational cosine (Niven's theorem).
    rational = {Fraction(0): Fraction(1), Fraction(1, 3): Fraction(1, 2), Fraction(1, 2): Fraction(0)}.get(angle)
    return _series(angle) if rational is None else rational


def _series(half_turns: Fraction) -> Decimal:
    angle = DIGITS.multiply(_PI, to_decimal(half_turns))
    square = DIGITS.multiply(angle, angle)
    total, term, index = Decimal(1), Decimal(1), 0
    while abs(term) > Decimal("1e-62"):
        index += 2
        term = DIGITS.divide(DIGITS.multiply(term, square), Decimal(-index * (index - 1)))
        total = DIGITS.add(total, term)
    return total


def show(value: object) -> str:
    """Return `value` as JSON for an error message, shortened to 80 characters."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def near(found: str, allowed: Iterable[str]) -> str:
    """Return the text ` (did you mean X?)` with the most similar allowed word, for an error message; empty: none is similar.

    Args:
        found: The unknown word.
        allowed: The allowed words.
    """
    words = difflib.get_close_matches(found, list(allowed), n=1)
    return f" (did you mean {words[0]}?)" if words else ""
