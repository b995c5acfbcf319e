"""The rungs of successive halving: their positions, and the jobs on them as `Policy.rungs` returns them for users.

A rung is a position at which successive halving compares jobs; the best ones are promoted to the next rung. A bracket
is a sequence of rungs through which a set of jobs passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


def rung_positions(R: int, r: int | Fraction, eta: int) -> tuple[int, ...]:
    """Return the rungs R, R / eta, R / eta^2, ... that are not below r, each rounded to the nearest position (halves up).

    These are floor(log_eta(R / r)) + 1 rungs, as in Algorithms 1 and 2 of the ASHA paper (section 3). The algorithms count up from r
    instead: rung i of bracket s is at r * eta^(i + s). If R is r * eta^k, both are equal. If not, the top rung of the printed formula
    is below R, and no configuration trains to R, although section 3.1 raises the budget until R is reached and Algorithm 1 states that
    a configuration will be allocated R. Rungs that go up from r and add R as a last rung would have a last step of any length, such as
    from 64 to 65, and would drop all but one of eta configurations there for almost no further training. Counted down, each step is a
    factor eta, as the division of the budget among rungs and brackets assumes (section 5.1, which also counts down: r = R / 256). The
    lowest rung is then between r and eta * r.

    Args:
        R: The maximum training of a configuration (a position), at least 1.
        r: The minimum training of a configuration, at least 1; with r > R / eta there is one rung, at R.
        eta: The reduction factor, at least 2.

    Returns:
        Ascending positions; the last is R.

    Raises:
        ValueError: An argument is out of range.
    """
    if R < 1 or r < 1 or eta < 2:
        raise ValueError(f"R is {R}, r is {r}, eta is {eta}; needed are R >= 1, r >= 1, eta >= 2")
    found = [R]
    exact = Fraction(R, eta)
    while exact >= r:
        found.append(int((2 * exact + 1) // 2))
        exact /= eta
    return tuple(reversed(found))


@dataclass(frozen=True, slots=True)
class RungEntry:
    """The result of one job at a rung.

    Attributes:
        job: The id of the job.
        value: The job's metric at the rung's position. NaN and infinite values are allowed and are worse than all
            others.
        promoted: Whether the job was promoted to the next rung.
    """

    job: str
    value: float
    promoted: bool = False


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of one bracket of successive halving: a position at which jobs are compared.

    Attributes:
        bracket: Number of the bracket, in order of creation, starting with 0.
        number: Number of the rung in its bracket, starting with 0 for the smallest position.
        position: The position to which jobs train before they are compared.
        standings: The jobs that have reported at the position, best first.
        awaited: Ids of the jobs that train to the position or are queued for it, in the order of their promotion or
            creation.
        width: Maximum number of jobs on this rung; None: no limit.
    """

    bracket: int
    number: int
    position: int
    standings: tuple[RungEntry, ...] = ()
    awaited: tuple[str, ...] = ()
    width: int | None = None
