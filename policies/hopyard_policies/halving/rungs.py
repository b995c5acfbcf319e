"""Positions of the rungs of a ladder, computed with exact fractions instead of logarithms."""

from __future__ import annotations

from fractions import Fraction

MOST_RUNGS = 5
"""Default maximum number of rungs of the bracket with the lowest first rung (ASHA, section 5.1)."""

LIMIT = 64
"""Upper limit of the number of rungs: with eta 2, the last is 2^63 times the first."""


def positions(R: int, r: int | Fraction, eta: int) -> tuple[int, ...]:
    """Return the rungs r, r * eta, r * eta^2, ... below R, each rounded to the nearest position (halves up), and R.

    If R is not r * eta^k, the top rung is at R: R = 60, r = 1, eta = 4 gives 1, 4, 16, 60.

    Args:
        R: The maximum training of a configuration (a position), at least 1.
        r: The minimum training of a configuration, at least 1; with r >= R there is one rung, at R.
        eta: The reduction factor, at least 2.

    Returns:
        Ascending positions; the last is R.

    Raises:
        ValueError: An argument is out of range.
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
    """Return the minimum training r that gives at most `rungs` rungs: R / eta^(rungs - 1), but at least 1.

    Args:
        R: The maximum training of a configuration (a position).
        eta: The reduction factor.
        rungs: The maximum number of rungs.
    """
    return max(Fraction(R, eta ** (rungs - 1)), Fraction(1))


def extended(ladder: tuple[int, ...], R: int, eta: int) -> tuple[int, ...]:
    """Extend a ladder to a larger R. The existing rungs stay.

    The new rungs are the multiples of the last existing rung by eta, eta^2, ... that are below R, and R itself as the last
    rung. If R is not larger than the last rung, the ladder is returned unchanged.

    Args:
        ladder: The positions of the rungs, ascending.
        R: The new maximum training of a configuration.
        eta: The reduction factor, at least 2.
    """
    return ladder if ladder[-1] >= R else (*ladder[:-1], *positions(R, ladder[-1], eta))
