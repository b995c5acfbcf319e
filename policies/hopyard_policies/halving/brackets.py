"""Which brackets there are, and how many configurations each of them gets."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

STANDARD = 3
"""Brackets of the standard set: the three that stop earliest, s = 0, 1, 2 (ASHA, section 5.1)."""


def standard(rungs: int) -> tuple[int, ...]:
    """The standard set on a ladder of so many rungs: s = 0, 1, 2, as far as these have two rungs; always s = 0."""
    return tuple(range(max(min(STANDARD, rungs - 1), 1)))


def average(rungs: int, eta: int) -> Fraction:
    """What a configuration of a bracket trains on average, as a part of R, if no promotion is wrong."""
    return Fraction(rungs, eta ** (rungs - 1))


def shares(n: int, rungs: Sequence[int], eta: int) -> tuple[int, ...]:
    """Divides n configurations among brackets so that each trains as much in all as the others (ASHA, section 5.1).

    A bracket gets its part by the inverse of its average budget, rounded down, and at least one; what is left goes to the first.
    When there are fewer configurations than brackets, the first ones get one each and the others none.

    Args:
        n: Configurations in all, >= 0.
        rungs: How many rungs each bracket has, the first one most.
        eta: The reduction factor.

    Returns:
        Configurations of each bracket; their sum is n.
    """
    if n < len(rungs):
        return tuple(int(index < n) for index in range(len(rungs)))
    inverse = [1 / average(count, eta) for count in rungs]
    widths = [max(int(n * part / sum(inverse)), 1) for part in inverse]
    widths[0] += n - sum(widths)
    return tuple(widths)


def divided(n: int, rungs: Sequence[int], eta: int, begun: Sequence[int]) -> tuple[int, ...]:
    """`shares` among brackets of which some hold configurations already: none gets less than it holds.

    What is left is divided by `shares` among the brackets that hold no more than their part of it.

    Args:
        n: Configurations in all, at least as many as have begun.
        rungs: How many rungs each bracket has, the first one most.
        eta: The reduction factor.
        begun: How many each bracket holds.

    Returns:
        Configurations of each bracket; their sum is n.
    """
    widths = list(begun)
    growing = list(range(len(rungs)))
    while growing:
        left = n - sum(widths[index] for index in range(len(rungs)) if index not in growing)
        parts = shares(left, [rungs[index] for index in growing], eta)
        full = [index for index, part in zip(growing, parts, strict=True) if part < begun[index]]
        if not full:
            for index, part in zip(growing, parts, strict=True):
                widths[index] = part
            break
        growing = [index for index in growing if index not in full]
    else:
        widths[0] += n - sum(widths)
    return tuple(widths)


def needed(rungs: int, eta: int) -> int:
    """Configurations with which a bracket of so many rungs is sure to train one to its top."""
    return int(eta ** (rungs - 1))


def hyperband(rungs: int, eta: int) -> tuple[int, ...]:
    """Configurations of Hyperband's brackets s = 0, 1, ..., as many as there are rungs: ceil(m / (m - s) * eta^(m - 1 - s)).

    All of them train about as much in all. The last has one rung: its configurations train to R at once.
    """
    return tuple(-(-rungs * eta ** (rungs - 1 - s) // (rungs - s)) for s in range(rungs))


def shortage(widths: Sequence[int], rungs: Sequence[int], eta: int) -> str:
    """Says when no bracket is wide enough to train anything to its top, and what would help; empty: one is."""
    if not rungs or any(width >= needed(count, eta) for width, count in zip(widths, rungs, strict=True)):
        return ""
    most = max(rungs)
    return (
        f"{sum(widths)} configurations are too few for {most} rungs at eta {eta}: the brackets get "
        f"{' + '.join(map(str, widths))}, and to bring one to the top they need "
        f"{' or '.join(str(needed(count, eta)) for count in rungs)}. Give more (stop.jobs), fewer rungs (rungs) or a smaller eta"
    )
