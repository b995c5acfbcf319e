"""Who stands where on a ladder of rungs: what policies of successive halving show of themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Standing:
    """A job that has reported at a rung.

    Attributes:
        job: The job.
        value: Its metric there; NaN and infinities are legal and worst.
        promoted: Whether it was promoted to the next rung.
    """

    job: str
    value: float
    promoted: bool = False


@dataclass(frozen=True, slots=True)
class Rung:
    """One rung of one bracket.

    Attributes:
        bracket: The bracket's number, in order of creation, from 0.
        number: The rung's number within its bracket, from 0 at the bottom.
        position: The position that its jobs train to.
        standings: The jobs that have reported there, best first.
        awaited: Jobs that train towards it, or are queued for it, in the order in which they were promoted or created.
        width: The most jobs that may ever stand here; None: any number.
    """

    bracket: int
    number: int
    position: int
    standings: tuple[Standing, ...] = ()
    awaited: tuple[str, ...] = ()
    width: int | None = None
