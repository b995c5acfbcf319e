"""The sets of brackets of an experiment and the number of configurations of each bracket.

The *ladder* of an experiment is the sequence of all its rungs, numbered from 0; the last one is at R, the maximum training of a
configuration. A *bracket* is one competition of successive halving. Bracket s has the rungs of the ladder from rung s; s is its
early-stopping rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

STANDARD = 3
"""Number of brackets of the standard set: the three that stop earliest, s = 0, 1, 2 (ASHA, section 5.1)."""


def standard(rungs: int) -> tuple[int, ...]:
    """Return the early-stopping rates of the standard set of brackets: 0, and 1 and 2 if their brackets have at least two rungs.

    The bracket with rate s has all rungs of the experiment except the first s, so it has `rungs` - s rungs.

    Args:
        rungs: The number of all rungs of the experiment.
    """
    return tuple(range(max(min(STANDARD, rungs - 1), 1)))


def average(rungs: int, eta: int) -> Fraction:
    """Return the average training of a configuration in a bracket, as a fraction of the maximum training of a configuration.

    It is assumed that exactly one of `eta` configurations of each rung is promoted.

    Args:
        rungs: The number of rungs of the bracket.
        eta: The reduction factor.
    """
    return Fraction(rungs, eta ** (rungs - 1))


def shares(n: int, rungs: Sequence[int], eta: int) -> tuple[int, ...]:
    """Divide n configurations among brackets so that all brackets train equally much (ASHA, section 5.1).

    The number of a bracket is proportional to the inverse of its average training, rounded down, but at least one; the
    first bracket gets the rest. With fewer configurations than brackets, the first brackets get one each.

    Args:
        n: The total number of configurations, >= 0.
        rungs: The number of rungs of each bracket, descending.
        eta: The reduction factor.

    Returns:
        The number of configurations of each bracket; the sum is n.
    """
    if n < len(rungs):
        return tuple(int(index < n) for index in range(len(rungs)))
    inverse = [1 / average(count, eta) for count in rungs]
    widths = [max(int(n * part / sum(inverse)), 1) for part in inverse]
    widths[0] += n - sum(widths)
    return tuple(widths)


def divided(n: int, rungs: Sequence[int], eta: int, begun: Sequence[int]) -> tuple[int, ...]:
    """Divide n configurations among brackets that already have some: no bracket gets less than it has.

    The brackets train about equally much: the number of a bracket is proportional to the inverse of its average training (see
    `shares`). A bracket that has more than that retains all it has; the remaining configurations are divided among the
    other brackets.

    Args:
        n: The total number of configurations, at least the sum of `begun`.
        rungs: The number of rungs of each bracket, descending.
        eta: The reduction factor.
        begun: The number of configurations that each bracket has.

    Returns:
        The number of configurations of each bracket; the sum is n.
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
    """Return the least number of configurations with which a bracket of `rungs` rungs certainly trains one to its top rung.

    Args:
        rungs: The number of rungs of the bracket.
        eta: The reduction factor.
    """
    return int(eta ** (rungs - 1))


def hyperband(rungs: int, eta: int) -> tuple[int, ...]:
    """Return the number of configurations of Hyperband's brackets s = 0, 1, ...: ceil(m / (m - s) * eta^(m - 1 - s)).

    All brackets train about equally much. The last one has one rung: its configurations train to the maximum position without
    stopping. Bracket s has all rungs of the experiment except the first s.

    Args:
        rungs: The number m of all rungs of the experiment.
        eta: The reduction factor.
    """
    return tuple(-(-rungs * eta ** (rungs - 1 - s) // (rungs - s)) for s in range(rungs))


def shortage(widths: Sequence[int], rungs: Sequence[int], eta: int) -> str:
    """Return a sentence for users if no bracket has enough configurations to train one to its top rung; empty: one has.

    Args:
        widths: The number of configurations of each bracket.
        rungs: The number of rungs of each bracket.
        eta: The reduction factor.
    """
    if not rungs or any(width >= needed(count, eta) for width, count in zip(widths, rungs, strict=True)):
        return ""
    least = "" if max(widths) >= eta else f", and nothing is promoted with fewer than {eta}"
    return (
        f"{sum(widths)} configurations are too few for {max(rungs)} rungs at eta {eta}: the brackets get "
        f"{' + '.join(map(str, widths))}, and to bring one to the top they need "
        f"{' or '.join(str(needed(count, eta)) for count in rungs)}{least}"
    )
