"""The queue of idle jobs."""

from __future__ import annotations

import bisect
from collections.abc import Iterator


class IdleQueue:
    """Job ids ordered by priority, highest first, then by arrival. Reading the first one takes constant time."""

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
        """Returns the arrival number of a job, from 1, or 0 if it does not wait.

        The number does not depend on priorities: jobs of higher priority precede the job in the queue.
        """
        key = self._keys.get(job)
        return key[1] if key is not None else 0

    def add(self, job: str, priority: float | None) -> None:
        """Adds a job."""
        self._sequence += 1
        self._insert((-(priority or 0.0), self._sequence, job))

    def label(self, job: str, priority: float | None) -> None:
        """Changes the priority of a job, if it waits. It keeps its arrival number."""
        key = self._keys.get(job)
        if key is not None:
            self.discard(job)
            self._insert((-(priority or 0.0), key[1], job))

    def discard(self, job: str) -> None:
        """Removes a job, if it waits."""
        key = self._keys.pop(job, None)
        if key is not None:
            del self._order[bisect.bisect_left(self._order, key)]

    def _insert(self, key: tuple[float, int, str]) -> None:
        self._keys[key[2]] = key
        bisect.insort(self._order, key)
