"""The jobs that wait for a slot, in the order in which they get one."""

from __future__ import annotations

import bisect
from collections.abc import Iterator


class IdleQueue:
    """Names of jobs: highest priority first, then first come. Asking for the first costs nothing, however many wait."""

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
        """When a job came, in relation to the others, from 1; 0: it does not wait. Those of higher priority come before it."""
        key = self._keys.get(job)
        return key[1] if key is not None else 0

    def add(self, job: str, priority: float | None) -> None:
        """A job waits from now on."""
        self._sequence += 1
        self._insert((-(priority or 0.0), self._sequence, job))

    def label(self, job: str, priority: float | None) -> None:
        """A job that may be waiting has another priority; among its equals it stays where it came."""
        key = self._keys.get(job)
        if key is not None:
            self.discard(job)
            self._insert((-(priority or 0.0), key[1], job))

    def discard(self, job: str) -> None:
        """A job waits no more; one that did not is fine."""
        key = self._keys.pop(job, None)
        if key is not None:
            del self._order[bisect.bisect_left(self._order, key)]

    def _insert(self, key: tuple[float, int, str]) -> None:
        self._keys[key[2]] = key
        bisect.insort(self._order, key)
