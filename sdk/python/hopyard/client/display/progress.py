"""Shows how far an experiment is while a client waits for it: a line in a terminal, a bar in a notebook."""

from __future__ import annotations

import html
import shutil
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Coroutine
from concurrent import futures
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO, TypeVar

from hopyard._common import formatting
from hopyard.client.display.outcome import STARTS_OVER, lost_progress
from hopyard.client.types import Change, Experiment, Job, JobGone

if TYPE_CHECKING:
    from hopyard.client.portal import LoopThread

T = TypeVar("T")

FRAME_SECONDS: Final = 0.25
"""Seconds between two updates of a display."""

_BAR: Final = 24


class WaitProgress:
    """The state of an experiment while a client waits for it, from the changes that `watch` yields.

    Args:
        began: Time at which the wait began, in monotonic seconds.

    Attributes:
        experiment: The newest state of the experiment; None: not received yet.
        jobs: The newest states of its jobs by id.
        starts_over: Whether a job lost its progress when it left its slot, because its program had saved nothing.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self.experiment: Experiment | None = None
        self.jobs: dict[str, Job] = {}
        self.starts_over = False

    def apply(self, change: Change) -> None:
        """Update the state with a change."""
        match change:
            case Experiment():
                self.experiment = change
            case Job():
                self.jobs[change.id] = change
                self.starts_over = self.starts_over or lost_progress(change)
            case JobGone(job=job):
                self.jobs.pop(job, None)

    @property
    def fraction(self) -> float | None:
        """The progress of the experiment in 0..1; 1: it has ended.

        It is the larger of two parts: that of the ended jobs in `stop.jobs`, and that of the running time in `stop.max_time`. None: the
        experiment has neither limit, or its state was not received yet.
        """
        if self.experiment is None:
            return None
        if self.experiment.state.ended:
            return 1.0
        stop = self.experiment.spec.get("stop") or {}
        done = [0.0]
        if wanted := stop.get("jobs"):
            done.append(sum(job.state.ended for job in list(self.jobs.values())) / wanted)
        if limit := stop.get("max_time"):
            done.append(self.experiment.running_seconds / limit)
        return min(1.0, max(done)) if len(done) > 1 else None

    def text(self, now: float) -> str:
        """Return the state as one line of text.

        Args:
            now: The current time in monotonic seconds.
        """
        elapsed = formatting.duration(now - self._began)
        one = self.experiment
        if one is None:
            return f"waits for the cluster  {elapsed}"
        found = list(self.jobs.values())
        wanted = (one.spec.get("stop") or {}).get("jobs")
        ended = sum(job.state.ended for job in found)
        states = Counter(job.state.value for job in found if not job.state.ended)
        failed = sum(job.state.value == "FAILED" for job in found)
        parts = [f"{ended}/{wanted} jobs ended" if wanted else f"{formatting.count(ended, 'job')} ended"]
        parts += [f"{count} {state.lower()}" for state, count in sorted(states.items())]
        parts += [f"{failed} failed"] if failed else []
        if one.best_value is not None:
            parts.append(f"best {one.metric.name} {formatting.number(one.best_value)} (job {one.best_job})")
        state = "" if one.state.value == "RUNNING" else f" {one.state.value}"
        return f"{one.name}{state}: {', '.join(parts)}  {elapsed}"

    def warn(self) -> None:
        """Issue a Python warning if `starts_over` is true, otherwise do nothing."""
        if self.starts_over:
            warnings.warn(STARTS_OVER, stacklevel=3)


class ProgressView(Protocol):
    """Displays a `WaitProgress`."""

    def show(self, progress: WaitProgress, now: float) -> None:
        """Display the state at `now` (monotonic seconds), in place of the one before."""

    def close(self) -> None:
        """End the display; what was shown last remains."""


class HiddenProgress:
    """Displays nothing."""

    def show(self, progress: WaitProgress, now: float) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class TerminalProgress:
    """Displays the progress as one line of a terminal.

    Args:
        stream: The terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = ""

    def show(self, progress: WaitProgress, now: float) -> None:
        """Overwrite the line with the state at `now`."""
        width = shutil.get_terminal_size().columns - 1
        line = f"{bar(progress.fraction)}{progress.text(now)}"[:width]
        if line != self._shown:
            with suppress(OSError):  # The terminal is closed, which must not end the wait.
                self._stream.write(f"\r{line.ljust(len(self._shown))}")
                self._stream.flush()
            self._shown = line

    def close(self) -> None:
        """End the line."""
        if self._shown:
            with suppress(OSError):
                self._stream.write("\n")
                self._stream.flush()


class NotebookProgress:
    """Displays the progress as a bar in the output of a notebook cell.

    Args:
        display: The function `IPython.display.display`.
    """

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None
        self._shown = ""

    def show(self, progress: WaitProgress, now: float) -> None:
        """Replace the bar by the state at `now`."""
        shown = progress_html(progress, now)
        if shown == self._shown:
            return
        self._shown = shown
        data = {"text/html": shown, "text/plain": progress.text(now)}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def close(self) -> None:
        """Do nothing: the last bar remains."""


def wait_with_progress(
    loop: LoopThread,
    work: Callable[[Callable[[Change], object]], Coroutine[Any, Any, T]],
    wanted: bool | None,
    continuation: Callable[[str], str],
) -> T:
    """Run a wait on the event loop in the background, show its progress in this thread, and return its result.

    Args:
        loop: The event loop.
        work: Returns the coroutine that waits. Its argument is a function that the coroutine must call with each change.
        wanted: Whether to show the progress; None: only in a notebook or if stderr is a terminal.
        continuation: Returns a hint for the user who interrupts the wait, for the id of the experiment; it is printed to stderr.

    Raises:
        BaseException: What the coroutine raised. If this thread is interrupted, the coroutine is cancelled.
    """
    state, view = WaitProgress(time.monotonic()), progress_view(wanted)
    waiting, interrupted = loop.start(work(state.apply)), False
    try:
        while not waiting.done():
            view.show(state, time.monotonic())
            futures.wait([waiting], FRAME_SECONDS)
        view.show(state, time.monotonic())
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        waiting.cancel()
        view.close()
        if interrupted and state.experiment is not None:
            with suppress(OSError):
                sys.stderr.write(f"interrupted; {continuation(state.experiment.id)}\n")
                sys.stderr.flush()
    state.warn()
    return waiting.result()


def bar(fraction: float | None) -> str:
    """Return a bar of text for a fraction in 0..1, followed by a blank; empty: the fraction is not known."""
    if fraction is None:
        return ""
    full = round(fraction * _BAR)
    return f"[{'#' * full}{'.' * (_BAR - full)}] "


def progress_html(progress: WaitProgress, now: float) -> str:
    """Return the state at `now` (monotonic seconds) as HTML."""
    fraction = progress.fraction
    value = "" if fraction is None else f' value="{fraction:.3f}" max="1"'
    return f"<div><progress{value} style='width: 16em'></progress> {html.escape(progress.text(now))}</div>"


def progress_view(wanted: bool | None) -> ProgressView:
    """Return the display for a wait: a bar in a notebook, else a line on stderr, or one that displays nothing.

    Args:
        wanted: Whether to display the progress; None: only in a notebook or if stderr is a terminal.
    """
    if wanted is False:
        return HiddenProgress()
    if (display := _notebook_display()) is not None:
        return NotebookProgress(display)
    return TerminalProgress(sys.stderr) if wanted or sys.stderr.isatty() else HiddenProgress()


def _notebook_display() -> Any:
    """Return `IPython.display.display` in a notebook, else None. IPython is not imported outside of it."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return import_module("IPython.display").display
