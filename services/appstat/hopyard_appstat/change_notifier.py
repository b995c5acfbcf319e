"""Waking watchers when something was committed.

A watcher keeps a cursor and reads from the database, so nothing queues up for a slow one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from hopyard.errors import Unavailable


class Wakes:
    """Who waits for statistics of which experiment."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._closed = False

    @contextmanager
    def subscribe(self, experiment: str) -> Iterator[Wake]:
        """Be woken by commits with statistics of an experiment, from now on."""
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
        """Wake whoever waits for one of these experiments."""
        for experiment in experiments:
            for event in self._waiting.get(experiment, ()):
                event.set()

    def close(self) -> None:
        """End all waits, and those to come, with `Unavailable`."""
        self._closed = True
        self.wake(set(self._waiting))

    @property
    def closed(self) -> bool:
        """Whether the service stops."""
        return self._closed


class Wake:
    """One watcher's alarm clock."""

    def __init__(self, wakes: Wakes, event: asyncio.Event) -> None:
        self._wakes = wakes
        self._event = event

    def arm(self) -> None:
        """Forget wakes so far: call it before reading, so that a commit during the reading wakes again.

        Raises:
            Unavailable: The service stops.
        """
        if self._wakes.closed:
            raise Unavailable("appstat is stopping: watch again, at its successor")
        self._event.clear()

    async def wait(self) -> None:
        """Wait for a commit since `arm`."""
        await self._event.wait()
