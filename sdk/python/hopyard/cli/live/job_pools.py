"""What a policy takes its jobs for, by its labels: promising above 0, else opportunistic (HyperDrive, section 3)."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from rich.text import Text

from hopyard._common.formatting import number
from hopyard.client.types import Job, JobState


class Pool(enum.Enum):
    """Where a job stands with its policy."""

    PROMISING = "promising"
    OPPORTUNISTIC = "opportunistic"
    ENDED = "ended"


LOOKS: Final = {
    Pool.PROMISING: ("★", "*", "bold #56B4E9"),
    Pool.OPPORTUNISTIC: ("☆", "-", "#E69F00"),
    Pool.ENDED: ("✗", "x", "dim"),
}
"""Of each pool a symbol, the same in ASCII, and a style."""


def labelled(jobs: Iterable[Job]) -> bool:
    """Whether the policy tells its jobs apart by labels."""
    return any(job.priority is not None for job in jobs)


def pool_of(job: Job) -> Pool | None:
    """A job's pool; None: it is complete, has failed, or is still being created."""
    if job.state in (JobState.CREATING, JobState.COMPLETED, JobState.FAILED):
        return None
    if job.state is JobState.TERMINATED:
        return Pool.ENDED
    return Pool.PROMISING if (job.priority or 0.0) > 0 else Pool.OPPORTUNISTIC


def counts(jobs: Iterable[Job]) -> dict[Pool, int]:
    """How many jobs each pool has, empty ones too."""
    found = dict.fromkeys(Pool, 0)
    for job in jobs:
        pool = pool_of(job)
        if pool is not None:
            found[pool] += 1
    return found


def mark(job: Job, *, ascii_only: bool = False) -> Text:
    """A job's pool in a table: its symbol, and what a promising one was labelled with."""
    pool = pool_of(job)
    if pool is None or pool is Pool.ENDED:
        return Text("")
    symbol, plain, style = LOOKS[pool]
    label = f" {number(round(job.priority or 0.0, 2))}" if pool is Pool.PROMISING else ""
    return Text(f"{plain if ascii_only else symbol}{label}", style=style)
