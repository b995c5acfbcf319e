"""Positions of the rungs of a ladder, computed with exact fractions instead of logarithms."""

from __future__ import annotations

from fractions import Fraction

from hopyard.policy.rungs import rung_positions

MOST_RUNGS = 5
"""Default maximum number of rungs of the bracket with the lowest first rung (ASHA, section 5.1)."""

LIMIT = 64
"""Upper limit of the number of rungs: with eta 2, the last is 2^63 times the first."""


def least(R: int, eta: int, rungs: int = MOST_RUNGS) -> Fraction:
    """Return the minimum training r that gives at most `rungs` rungs: R / eta^(rungs - 1), but at least 1.

    Args:
        R: The maximum training of a configuration (a position).
        eta: The reduction factor.
        rungs: The maximum number of rungs.
    """
    return max(Fraction(R, eta ** (rungs - 1)), Fraction(1))


def rising(R: int, r: int, eta: int) -> tuple[int, ...]:
    """Return the rungs of the infinite horizon: r, r * eta, r * eta^2, ... that are not above R (ASHA, section 3.3).

    R limits the training of a configuration and does not determine the rungs, so they do not change if R grows. Empty if r is above R.

    Args:
        R: The position at which configurations are complete.
        r: The minimum training of a configuration, at least 1.
        eta: The reduction factor, at least 2.
    """
    found = []
    while r <= R:
        found.append(r)
        r *= eta
    return tuple(found)


def extended(ladder: tuple[int, ...], R: int, eta: int) -> tuple[int, ...]:
    """Extend a ladder to a larger R. The existing rungs stay.

    The new rungs are R, R / eta, R / eta^2, ... as far as they are at least eta times the last existing rung. So at most the step to
    R itself is shorter than by eta, namely if R is less than eta times the last existing rung. If R is not larger than the last rung,
    the ladder is returned unchanged.

    Args:
        ladder: The positions of the rungs, ascending.
        R: The new maximum training of a configuration.
        eta: The reduction factor, at least 2.
    """
    return ladder if ladder[-1] >= R else (*ladder, *rung_positions(R, eta * ladder[-1], eta))
