"""Watchers of experiments. A slow watcher gets the newest state of each job instead of all intermediate ones."""

from __future__ import annotations

import asyncio
from collections import deque

from hopyard_engine.core.effects import ReportAccepted

MAX_REPORTS = 50_000
"""Maximum number of reports that wait for a slow watcher; the oldest are dropped. AppStat has all of them."""


class Watcher:
    """The pending changes for one watcher of an experiment: changed jobs, and reports in order."""

    def __init__(self) -> None:
        self.jobs: dict[str, None] = {}
        self.changed = True
        self.reports: deque[ReportAccepted] = deque(maxlen=MAX_REPORTS)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Signals that changes are pending."""
        self._woken.set()

    async def wait(self) -> None:
        """Waits until changes are pending."""
        await self._woken.wait()
        self._woken.clear()


class Watchers:
    """The watchers of all experiments."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[Watcher]] = {}

    def publish(self, experiments: set[str], jobs: set[tuple[str, str]], reports: list[ReportAccepted]) -> None:
        """Passes the changes of a journalled batch to watchers."""
        touched = set()
        for name, job in jobs:
            for watcher in self._watchers.get(name, ()):
                watcher.jobs[job] = None
                touched.add(watcher)
        for report in reports:
            for watcher in self._watchers.get(report.experiment, ()):
                watcher.reports.append(report)
                watcher.jobs[report.job] = None
                watcher.changed = True
                touched.add(watcher)
        for name in experiments:
            for watcher in self._watchers.get(name, ()):
                watcher.changed = True
                touched.add(watcher)
        for watcher in touched:
            watcher.wake()

    def add(self, experiment: str) -> Watcher:
        """Adds a watcher of an experiment; it is woken for the present state."""
        watcher = Watcher()
        self._watchers.setdefault(experiment, set()).add(watcher)
        watcher.wake()
        return watcher

    def remove(self, experiment: str, watcher: Watcher) -> None:
        """Removes a watcher."""
        watchers = self._watchers.get(experiment, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(experiment, None)
