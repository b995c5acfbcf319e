"""Wakes watchers after commits.

A watcher keeps a cursor and reads from the database, so no queue builds up for a slow watcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from hopyard.errors import Unavailable


class Wakes:
    """The watchers of statistics, by experiment."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._closed = False

    @contextmanager
    def subscribe(self, experiment: str) -> Iterator[Wake]:
        """Yields a `Wake` that each commit with statistics of the experiment sets, as long as the context lasts."""
        event = asyncio.Event()
        self._waiting.setdefault(experiment, set()).add(event)
        try:
            yield Wake(self, event)
        finally:
            others = self._waiting[experiment]
            others.discard(event)
            if not others:
                del self._waiting[experiment]

    def wake(self, experiments: set[str]) -> None:
        """Wakes the watchers of these experiments."""
        for experiment in experiments:
            for event in self._waiting.get(experiment, ()):
                event.set()

    def close(self) -> None:
        """Wakes all watchers; every later `Wake.arm` raises `Unavailable`."""
        self._closed = True
        self.wake(set(self._waiting))

    @property
    def closed(self) -> bool:
        """Whether the service is stopping."""
        return self._closed


class Wake:
    """The wake-up signal of one watcher."""

    def __init__(self, wakes: Wakes, event: asyncio.Event) -> None:
        self._wakes = wakes
        self._event = event

    def arm(self) -> None:
        """Clears the signal. Call it before each read, so that a commit during the read wakes the watcher again.

        Raises:
            Unavailable: The service is stopping.
        """
        if self._wakes.closed:
            raise Unavailable("appstat is stopping: watch again after its restart")
        self._event.clear()

    async def wait(self) -> None:
        """Waits for a commit since the last `arm`."""
        await self._event.wait()
