"""Limits on how many jobs a policy creates at a time, so that one decision does not block the scheduler."""

from __future__ import annotations

from typing import Final

from hopyard.policy import Cluster, JobState

MOST: Final = 10_000
"""Upper limit of parameters that count jobs, such as `ahead`."""

AT_ONCE: Final = 512
"""Upper limit of jobs in state CREATING. Policies create further jobs when these have their configurations."""


def room(cluster: Cluster, wanted: int) -> int:
    """Return how many of `wanted` further jobs may be created now (>= 0), so that at most `AT_ONCE` are in state CREATING."""
    return max(min(wanted, AT_ONCE - cluster.count(JobState.CREATING)), 0)


def need_at_most(name: str, value: int, most: int = MOST) -> None:
    """Check that a parameter is not too large.

    Args:
        name: The name of the parameter, for the message.
        value: Its value.
        most: The largest allowed value.

    Raises:
        ValueError: The value is above `most`.
    """
    if value > most:
        raise ValueError(f"{name} is {value!r}; it must be at most {most}")
