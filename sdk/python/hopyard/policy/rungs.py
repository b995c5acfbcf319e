"""The jobs on the rungs of successive halving, as policies show them to users."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """A job that has reported at a rung.

    Attributes:
        job: The job.
        value: Its metric there. NaN and infinite values are allowed and count as worst.
        promoted: Whether it was promoted to the next rung.
    """

    job: str
    value: float
    promoted: bool = False


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of one bracket.

    Attributes:
        bracket: Number of the bracket, in order of creation, starting with 0.
        number: Number of the rung in its bracket, starting with 0 at the bottom.
        position: The position to which its jobs train.
        standings: The jobs that have reported there, best first.
        awaited: Jobs that train towards it or are queued for it, in the order of their promotion or creation.
        width: Maximum number of jobs on this rung; None: any number.
    """

    bracket: int
    number: int
    position: int
    standings: tuple[Standing, ...] = ()
    awaited: tuple[str, ...] = ()
    width: int | None = None
