"""Shows the live view on a terminal, or as lines of plain text without one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from rich.console import Console
from rich.live import Live

from hopyard._common import formatting
from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.render import render
from hopyard.client.display.job_looks import LOOKS
from hopyard.client.display.outcome import is_asked
from hopyard.client.types import Experiment, JobState

FRAME_SECONDS: Final = 0.25
LINE_SECONDS: Final = 5.0


@asynccontextmanager
async def shown(model: LiveModel, console: Console | None = None) -> AsyncIterator[None]:
    """Return a context manager that shows a model while it is open.

    On a terminal, the view is redrawn in place; otherwise a line of text is printed every few seconds if it has changed.

    Args:
        model: The model to show. The caller updates it.
        console: The console to print on; None: stderr.
    """
    console = console or Console(stderr=True)
    show = _drawn if console.is_terminal and not console.is_dumb_terminal else _written
    task = asyncio.create_task(show(model, console), name="live view")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _drawn(model: LiveModel, console: Console) -> None:
    ascii_only = not console.encoding.lower().startswith("utf")

    def frame() -> object:
        width, height = console.size
        # One line less than the terminal has, so that the line of the cursor does not make it scroll.
        return render(model, width, height - 1, time.monotonic(), ascii_only=ascii_only)

    # It is transient: the final table replaces it.
    with Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=True) as live:
        await _repeat(lambda: live.update(frame(), refresh=True), FRAME_SECONDS)  # type: ignore[arg-type]


async def _written(model: LiveModel, console: Console) -> None:
    last = ""

    def line() -> None:
        nonlocal last
        text = plain_line(model, time.monotonic())
        if text != last:
            console.print(text, markup=False, highlight=False, soft_wrap=True)
            last = text

    await _repeat(line, LINE_SECONDS)


async def _repeat(act: Callable[[], object], every: float) -> None:
    while True:
        act()
        await asyncio.sleep(every)


def plain_line(model: LiveModel, now: float) -> str:
    """Return the state of the model at `now` (monotonic seconds) as one line of text, for output without a terminal."""
    experiment = model.experiment
    if experiment is None:
        return f"{model.source or 'experiment'}: waiting for the cluster"
    # Before the first job arrives, use the counts of the experiment.
    counted = model.counts() or {LOOKS[JobState(state)]: amount for state, amount in experiment.jobs.items()}
    counts = ", ".join(f"{amount} {look.word}" for look, amount in counted.items() if amount) or "no jobs yet"
    live = sum(job.state.live for job in model.jobs.values())
    if (busy := model.slots_in_use()[0]) > live:
        counts += f" ({busy} slots busy)"
    best = model.without_best()
    if model.best_value is not None:
        best = (
            f"best {experiment.metric.name} {formatting.number(experiment.best_value)} "
            f"(job {experiment.best_job} at {experiment.best_position})"
        )
    left = model.remaining(now)
    remaining = f", {left}" if left else ""
    waits = f"  {formatting.first_line(_waits(model, experiment))}".rstrip()
    pace = model.silence(now) or f"{model.rate(now):.1f} reports/s"
    return (
        f"{formatting.duration(model.elapsed(now)):>7}  {experiment.name} {experiment.state.name}{remaining}  "
        f"{counts}  {best}  {pace}{waits}{f'  {model.trouble}' if model.trouble else ''}"
    )


def _waits(model: LiveModel, experiment: Experiment) -> str:
    """Return the reason why the experiment waits; empty if it does not wait.

    An experiment without a reason also waits while none of its jobs has progressed beyond STARTING. The result is then the reason of
    one STARTING job, else the most frequent reason why jobs wait. A short wait for the policy (see `is_asked`) is ignored.

    Args:
        model: The model, which has the jobs.
        experiment: The experiment in its current state.
    """
    if is_asked(experiment):
        return ""  # This reason is frequent and short; a longer wait has a reason with its duration.
    live = [job for job in model.jobs.values() if job.state.live]
    if experiment.reason or any(job.state is not JobState.STARTING for job in live):
        return experiment.reason
    if starting := next((job for job in live if job.reason), None):
        return f"job {starting.id} {starting.reason}"
    return next((reason for _, _, reason in model.waits()), "")
