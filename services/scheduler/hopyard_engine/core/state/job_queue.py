"""The queue of idle jobs that wait for a slot."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Final

_BEHIND: Final = 2**40
"""Added to the places of jobs that are not displaced, so that they are behind those that are."""


class IdleQueue:
    """A priority queue of the ids of idle jobs. Iteration is in its order.

    Jobs with higher priority come first, then displaced ones (`Job.displaced`), then those that arrived earlier.
    """

    def __init__(self) -> None:
        self._keys: dict[str, tuple[float, int, str]] = {}
        self._order: list[tuple[float, int, str]] = []
        self._arrivals = 0

    def __iter__(self) -> Iterator[str]:
        return (name for _, _, name in self._order)

    def __contains__(self, job: object) -> bool:
        return job in self._keys

    def __len__(self) -> int:
        return len(self._order)

    def place(self, job: str) -> int:
        """Return a number above 0 that orders jobs of equal priority, the smallest first, or 0 if the job is not in the queue."""
        key = self._keys.get(job)
        return key[1] if key is not None else 0

    def add(self, job: str, priority: float | None, *, displaced: bool = False) -> None:
        """Add a job behind the jobs of its priority that are displaced or not, as it is itself. The job must not be in the queue.

        Args:
            job: Id of the job.
            priority: Its priority, higher first; None is the same as 0.
            displaced: Whether it comes before the jobs of its priority that are not displaced.
        """
        self._arrivals += 1
        self._insert((-(priority or 0.0), self._arrivals if displaced else self._arrivals + _BEHIND, job))

    def label(self, job: str, priority: float | None) -> None:
        """Change the priority of a job in the queue. The job retains its place among the jobs of equal priority.

        Args:
            job: Id of the job. If it is not in the queue, nothing changes.
            priority: The new priority, higher first; None is the same as 0.
        """
        key = self._keys.get(job)
        if key is not None:
            self.discard(job)
            self._insert((-(priority or 0.0), key[1], job))

    def discard(self, job: str) -> None:
        """Remove a job from the queue, if it is there."""
        key = self._keys.pop(job, None)
        if key is not None:
            del self._order[bisect.bisect_left(self._order, key)]

    def _insert(self, key: tuple[float, int, str]) -> None:
        self._keys[key[2]] = key
        bisect.insort(self._order, key)
