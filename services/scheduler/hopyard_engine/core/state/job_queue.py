"""The queue of idle jobs that wait for a slot."""

from __future__ import annotations

import bisect
from collections.abc import Iterator


class IdleQueue:
    """A priority queue of the ids of idle jobs: highest priority first, then by arrival. Iteration is in this order."""

    def __init__(self) -> None:
        self._keys: dict[str, tuple[float, int, str]] = {}
        self._order: list[tuple[float, int, str]] = []
        self._sequence = 0

    def __iter__(self) -> Iterator[str]:
        return (name for _, _, name in self._order)

    def __contains__(self, job: object) -> bool:
        return job in self._keys

    def __len__(self) -> int:
        return len(self._order)

    def place(self, job: str) -> int:
        """Return the arrival number of a job, from 1, or 0 if the job is not in the queue.

        All arrivals in this queue so far are counted. The number is not the job's rank in the queue, which also depends on priorities.
        """
        key = self._keys.get(job)
        return key[1] if key is not None else 0

    def add(self, job: str, priority: float | None) -> None:
        """Add a job with the next arrival number. The job must not be in the queue. A `priority` of None is the same as 0."""
        self._sequence += 1
        self._insert((-(priority or 0.0), self._sequence, job))

    def label(self, job: str, priority: float | None) -> None:
        """Change the priority of a job in the queue. The job retains its arrival number.

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
