"""Assigns jobs to pools by their priority, the number with which a policy labels a job (HyperDrive, section 3).

A job with a priority above 0 is promising, any other one opportunistic.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from rich.text import Text

from hopyard._common.formatting import number
from hopyard.client.display import job_looks
from hopyard.client.types import Job, JobState


class Pool(enum.Enum):
    """The pool of a job: PROMISING (priority above 0), OPPORTUNISTIC (any other unfinished job), or ENDED (terminated)."""

    PROMISING = "promising"
    OPPORTUNISTIC = "opportunistic"
    ENDED = "ended"


_ENDED: Final = job_looks.LOOKS[JobState.TERMINATED]

LOOKS: Final = {
    Pool.PROMISING: ("★", "*", "bold #56B4E9"),
    Pool.OPPORTUNISTIC: ("☆", "-", "#E69F00"),
    Pool.ENDED: (_ENDED.symbol, _ENDED.ascii, _ENDED.style),
}
"""Symbol, ASCII symbol and style of each pool."""


def labelled(jobs: Iterable[Job]) -> bool:
    """Return whether the policy has set the priority of any job.

    If not, the policy does not divide the jobs into promising and opportunistic ones, and views do not show these pools.
    """
    return any(job.priority is not None for job in jobs)


def pool_of(job: Job) -> Pool | None:
    """Return the pool of a job, or None if it is completed, failed or being created."""
    if job.state in (JobState.CREATING, JobState.COMPLETED, JobState.FAILED):
        return None
    if job.state is JobState.TERMINATED:
        return Pool.ENDED
    return Pool.PROMISING if (job.priority or 0.0) > 0 else Pool.OPPORTUNISTIC


def counts(jobs: Iterable[Job]) -> dict[Pool, int]:
    """Return the number of jobs in each pool (promising, opportunistic, terminated), including empty pools.

    Jobs without a pool are not counted.
    """
    found = dict.fromkeys(Pool, 0)
    for job in jobs:
        pool = pool_of(job)
        if pool is not None:
            found[pool] += 1
    return found


def mark(job: Job, *, ascii_only: bool = False) -> Text:
    """Return the symbol of a job's pool (promising or opportunistic) for a table, followed by the priority of a promising job.

    Empty: the job is terminated, or it is completed, failed or being created and so in no pool. With `ascii_only`, the symbol is an
    ASCII character.
    """
    pool = pool_of(job)
    if pool is None or pool is Pool.ENDED:
        return Text("")
    symbol, plain, style = LOOKS[pool]
    label = f" {number(round(job.priority or 0.0, 2))}" if pool is Pool.PROMISING else ""
    return Text(f"{plain if ascii_only else symbol}{label}", style=style)
