"""Watchers of experiments. A slow watcher gets the newest state of each job instead of all intermediate states.

Reports are not combined: they wait in a queue. The watch of a client for which too many of them wait is ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from hopyard.errors import Exhausted
from hopyard_engine.core.effects import ReportAccepted

MAX_REPORTS = 50_000
"""Maximum number of reports that wait for a slow watcher. AppStat has all reports."""

STEPS_PER_ITERATION = 16
"""Maximum number of steps (a wake-up, or the preparation of one message) of all watches in one iteration of the event loop."""

SLICE_SECONDS = 0.005
"""Seconds of work between two pauses. The timers of an event loop are accurate to a millisecond."""

T = TypeVar("T")


class Watcher:
    """The changes of an experiment that one watcher has not sent to its client yet.

    Attributes:
        jobs: Ids of changed jobs. The dict serves as an ordered set.
        changed: True if the experiment itself has changed.
        reports: Accepted reports in order.
        slow: Set when more than `MAX_REPORTS` reports would wait. The queue is then empty and stays empty: the watch must end.
        queued: True while a call of `wake` is in the queue of `Watchers`.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, None] = {}
        self.changed = True
        self.reports: deque[ReportAccepted] = deque()
        self.slow = asyncio.Event()
        self.queued = False
        self._woken = asyncio.Event()

    def add(self, report: ReportAccepted) -> None:
        """Queue a report and note that its job and the experiment have changed."""
        if len(self.reports) >= MAX_REPORTS:
            self.slow.set()
            self.reports.clear()
        if not self.slow.is_set():
            self.reports.append(report)
        self.jobs[report.job] = None
        self.changed = True

    def wake(self) -> bool:
        """End the present or next call of `wait`, and return True."""
        self.queued = False
        self._woken.set()
        return True

    async def wait(self) -> None:
        """Wait until `wake` is called. Return at once if it was called since the last return."""
        await self._woken.wait()
        self._woken.clear()


class WatchQueue:
    """A fair queue of the work of all watches. It limits them to about half of the event loop's time.

    Thousands of watches therefore do not delay other calls.

    A call needs several iterations of the event loop. Without the queue, each of them would last as long as all watches need for a
    message. In the other half of the time the event loop waits for its sockets. gRPC's threads need it to deliver what arrives.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], bool]] = deque()
        self._scheduled = False
        self._worked = 0.0
        """Seconds of work since the last pause."""

    def add(self, step: Callable[[], bool]) -> None:
        """Call `step` when it is its turn. Steps are called in the order in which they were added.

        Args:
            step: Returns False if there was nothing to do, so that it does not count as a step.
        """
        self._waiting.append(step)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    async def turn(self) -> None:
        """Wait until it is the caller's turn to prepare one message."""
        turn = asyncio.get_running_loop().create_future()

        def give() -> bool:
            if turn.done():  # The caller was cancelled.
                return False
            turn.set_result(None)
            return True

        self.add(give)
        await turn

    def _run(self) -> None:
        """Call the next steps."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        steps = 0
        try:
            while self._waiting and steps < STEPS_PER_ITERATION:
                steps += self._waiting.popleft()()
        finally:
            loop.call_soon(self._pause, begun)  # It runs after the watches whose turn it is.

    def _pause(self, begun: float) -> None:
        """Continue at once if the work since the last pause took less than `SLICE_SECONDS`, else after a pause as long as that work."""
        loop = asyncio.get_running_loop()
        self._worked += loop.time() - begun
        if self._worked < SLICE_SECONDS:
            self._resume()
        else:
            loop.call_later(self._worked, self._resume)
            self._worked = 0.0

    def _resume(self) -> None:
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._run)


class Watchers:
    """The register of all watchers, by experiment.

    Attributes:
        queue: The order in which they work.
    """

    def __init__(self) -> None:
        self.queue = WatchQueue()
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
                watcher.add(report)
                touched.add(watcher)
        for name in experiments:
            for watcher in self._watchers.get(name, ()):
                watcher.changed = True
                touched.add(watcher)
        for watcher in touched:
            if not watcher.queued:
                watcher.queued = True
                self.queue.add(watcher.wake)

    def add(self, experiment: str, watcher: Watcher) -> None:
        """Register a new watcher of an experiment. Its first `wait` returns at once, so that it sends the present state."""
        self._watchers.setdefault(experiment, set()).add(watcher)
        watcher.wake()

    def remove(self, experiment: str, watcher: Watcher) -> None:
        """Remove a watcher of an experiment. No effect if it is not registered."""
        watchers = self._watchers.get(experiment, set())
        watchers.discard(watcher)
        if not watchers:
            self._watchers.pop(experiment, None)


async def send_while_read(
    changes: AsyncGenerator[T], write: Callable[[T], Awaitable[None]], slow: asyncio.Event
) -> None:
    """Write the changes of a watch to its client until they end.

    Args:
        changes: The changes.
        write: Sends a change. It waits while the client does not read.
        slow: Set when too many changes wait for the client.

    Raises:
        Exhausted: `slow` was set, also if `write` still waits.
    """

    async def send() -> None:
        async with aclosing(changes):
            async for change in changes:
                await write(change)

    sending = asyncio.create_task(send(), name="watch")
    waiting = asyncio.create_task(slow.wait(), name="slow watcher")
    try:
        await asyncio.wait({sending, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            raise Exhausted(
                f"the watch is ended because more than {MAX_REPORTS} reports wait for it: its client reads too slowly, or too many "
                "watches are open; watch again, and read the reports from AppStat"
            )
        await sending
    finally:
        sending.cancel()
        waiting.cancel()
        await asyncio.gather(sending, waiting, return_exceptions=True)
