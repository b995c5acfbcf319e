"""The jobs on the rungs of successive halving, as `Policy.rungs` returns them for users.

A rung is a position at which successive halving compares jobs; the best ones are promoted to the next rung. A bracket
is a sequence of rungs through which a set of jobs passes.
"""

from __future__ import annotations

from dataclasses import dataclass


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
