"""Wakes the watchers of statistics after commits.

A watcher is a client's stream of new statistics. After each wake-up it reads new rows from the database, starting after the last row
that it read, so no queue builds up for a slow watcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from hopyard.errors import Unavailable


class WatcherSignals:
    """The wake-up signals of all watchers, by the experiment that each one watches.

    A watcher calls `subscribe`. The database writer calls `wake` after each commit that adds statistics.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._closed = False

    @contextmanager
    def subscribe(self, experiment: str) -> Iterator[WatcherSignal]:
        """Return a context with a new `WatcherSignal`. Until the context ends, each `wake` for the experiment sets the signal."""
        event = asyncio.Event()
        self._waiting.setdefault(experiment, set()).add(event)
        try:
            yield WatcherSignal(self, event)
        finally:
            others = self._waiting[experiment]
            others.discard(event)
            if not others:
                del self._waiting[experiment]

    def wake(self, experiments: set[str]) -> None:
        """Set the signals of all watchers of these experiments."""
        for experiment in experiments:
            for event in self._waiting.get(experiment, ()):
                event.set()

    def close(self) -> None:
        """Set the signals of all watchers. From then on, `WatcherSignal.arm` raises `Unavailable`."""
        self._closed = True
        self.wake(set(self._waiting))

    @property
    def closed(self) -> bool:
        """Whether `close` was called, which means that the service is stopping."""
        return self._closed


class WatcherSignal:
    """The wake-up signal of one watcher. Use it in a loop: `arm`, read new rows, and `wait` if there were none.

    Args:
        wakes: The signals of all watchers, which tell whether the service is stopping.
        event: The event that is set to wake the watcher.
    """

    def __init__(self, wakes: WatcherSignals, event: asyncio.Event) -> None:
        self._wakes = wakes
        self._event = event

    def arm(self) -> None:
        """Clear the signal. Call it before each read, so that a commit during the read sets it again.

        Raises:
            Unavailable: The service is stopping.
        """
        if self._wakes.closed:
            raise Unavailable("appstat is stopping: watch again after its restart")
        self._event.clear()

    async def wait(self) -> None:
        """Wait until the signal is set: by a commit since the last `arm`, or because the service is stopping."""
        await self._event.wait()
