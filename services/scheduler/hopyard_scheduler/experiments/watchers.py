"""Watchers of experiments. A slow watcher gets the newest state of each job instead of all intermediate states."""

from __future__ import annotations

import asyncio
from collections import deque

from hopyard_engine.core.effects import ReportAccepted

MAX_REPORTS = 50_000
"""Maximum number of reports that wait for a slow watcher; the oldest are dropped. AppStat has all of them."""


class Watcher:
    """The changes of an experiment that one watcher has not sent to its client yet.

    Attributes:
        jobs: Ids of changed jobs. The dict serves as an ordered set.
        changed: True if the experiment itself has changed.
        reports: Accepted reports in order. Beyond `MAX_REPORTS`, the oldest are dropped.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, None] = {}
        self.changed = True
        self.reports: deque[ReportAccepted] = deque(maxlen=MAX_REPORTS)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """End the present or next call of `wait`."""
        self._woken.set()

    async def wait(self) -> None:
        """Wait until `wake` is called. Return at once if it was called since the last return."""
        await self._woken.wait()
        self._woken.clear()


class Watchers:
    """The register of all watchers, by experiment."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[Watcher]] = {}

    def publish(self, experiments: set[str], jobs: set[tuple[str, str]], reports: list[ReportAccepted]) -> None:
        """Add the changes of a journalled batch of events to the watchers of the changed experiments, and wake these watchers.

        Args:
            experiments: Ids of changed experiments.
            jobs: Changed jobs, as pairs of experiment id and job id.
            reports: Accepted reports.
        """
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
        """Register and return a watcher of an experiment. Its first `wait` returns at once, so that it sends the present state."""
        watcher = Watcher()
        self._watchers.setdefault(experiment, set()).add(watcher)
        watcher.wake()
        return watcher

    def remove(self, experiment: str, watcher: Watcher) -> None:
        """Remove a watcher of an experiment. No effect if it is not registered."""
        watchers = self._watchers.get(experiment, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(experiment, None)
