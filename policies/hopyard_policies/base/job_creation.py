"""How many jobs a policy has made at a time: what it asks for in one answer keeps the scheduler busy, and others waiting."""

from __future__ import annotations

from typing import Final

from hopyard.policy import Cluster, JobState

MOST: Final = 10_000
"""Jobs that a parameter may ask for beyond those that train, such as `ahead`."""

AT_ONCE: Final = 512
"""Jobs that a policy of this package lets wait for their configurations at a time; the next ones it asks for as these come."""


def room(cluster: Cluster, wanted: int) -> int:
    """How many of the jobs that a policy wants it may create now, at least 0: the others when these are there."""
    return max(min(wanted, AT_ONCE - cluster.count(JobState.CREATING)), 0)


def need_at_most(name: str, value: int, most: int = MOST) -> None:
    """Refuses a parameter that is too large.

    Raises:
        ValueError: It is.
    """
    if value > most:
        raise ValueError(f"{name} is {value!r}; it must be at most {most}")
