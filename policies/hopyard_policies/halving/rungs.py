"""Where the rungs of a ladder are: whole positions, from exact fractions. No logarithm is taken."""

from __future__ import annotations

from fractions import Fraction

MOST_RUNGS = 5
"""Rungs of the most aggressive bracket, by default (ASHA, section 5.1)."""

LIMIT = 64
"""No ladder has more rungs: that many are 2^63 apart."""


def positions(R: int, r: int | Fraction, eta: int) -> tuple[int, ...]:
    """The rungs at r, r * eta, r * eta^2, ... below R, each rounded to the nearest position, and R on top of them.

    When R is not r * eta^k, the top rung is capped at R: R = 60, r = 1, eta = 4 gives 1, 4, 16, 60.

    Args:
        R: The most that a configuration trains, at least 1.
        r: The least, at least 1; with r >= R there is one rung, at R.
        eta: The reduction factor, at least 2.

    Returns:
        Rising positions; the last is R.
    """
    if R < 1 or r < 1 or eta < 2:
        raise ValueError(f"R is {R}, r is {r}, eta is {eta}; needed are R >= 1, r >= 1, eta >= 2")
    found = []
    exact = Fraction(r)
    while (rounded := (2 * exact + 1) // 2) < R:
        found.append(int(rounded))
        exact *= eta
    return (*found, R)


def least(R: int, eta: int, rungs: int = MOST_RUNGS) -> Fraction:
    """The r that gives at most so many rungs: R / eta^(rungs - 1), and 1 where that is less than a unit."""
    return max(Fraction(R, eta ** (rungs - 1)), Fraction(1))


def extended(ladder: tuple[int, ...], R: int, eta: int) -> tuple[int, ...]:
    """A ladder whose jobs may train further: its rungs stay, and others follow from its top, by the same factor, up to R.

    An R that is no further leaves it as it is.
    """
    return ladder if ladder[-1] >= R else (*ladder[:-1], *positions(R, ladder[-1], eta))
