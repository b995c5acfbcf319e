"""Watching an experiment: the present state first, then every change, however slowly the watcher reads."""

from __future__ import annotations

import asyncio
from collections import deque

from hopyard_engine.core.effects import ReportAccepted

MAX_REPORTS = 50_000
"""Reports that wait for a slow watcher; the oldest are dropped beyond it. AppStat's statistics hold them all."""


class Watcher:
    """One watcher of one experiment: which jobs changed, and reports in order."""

    def __init__(self) -> None:
        self.jobs: dict[str, None] = {}
        self.changed = True
        self.reports: deque[ReportAccepted] = deque(maxlen=MAX_REPORTS)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something is there to send."""
        self._woken.set()

    async def wait(self) -> None:
        """Until something is there to send."""
        await self._woken.wait()
        self._woken.clear()


class Watchers:
    """All watchers, by experiment."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[Watcher]] = {}

    def publish(self, experiments: set[str], jobs: set[tuple[str, str]], reports: list[ReportAccepted]) -> None:
        """Tells watchers what a journalled batch changed."""
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
        """Begins to watch."""
        watcher = Watcher()
        self._watchers.setdefault(experiment, set()).add(watcher)
        watcher.wake()
        return watcher

    def remove(self, experiment: str, watcher: Watcher) -> None:
        """Ends to watch."""
        watchers = self._watchers.get(experiment, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(experiment, None)
