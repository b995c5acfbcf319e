"""Shows the live view on a terminal, or as lines of plain text without one."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from rich.console import Console

from hopyard._common import formatting
from hopyard.cli.errors import explain
from hopyard.cli.live.columns import ordered
from hopyard.cli.live.controls import Action, Command, Controls
from hopyard.cli.live.keys import Key
from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.render import render
from hopyard.cli.live.style import Escaped
from hopyard.cli.live.terminal import Terminal, is_foreground
from hopyard.cli.output import say
from hopyard.client.display.job_looks import LOOKS
from hopyard.client.display.outcome import is_asked
from hopyard.client.display.short_reason import failed_attempt
from hopyard.client.types import Experiment, JobState

FRAME_SECONDS: Final = 0.25
LINE_SECONDS: Final = 5.0


@asynccontextmanager
async def live_view(
    model: LiveModel,
    console: Console | None = None,
    controls: Controls | None = None,
    perform: Callable[[Command], object] = lambda _: None,
) -> AsyncIterator[None]:
    """Return a context manager that shows a model while it is open.

    On a terminal, the view fills the screen and is redrawn four times a second, and at once after a key or a change of the size.
    Otherwise, and if the process is started in the background, a line of text is printed every few seconds if it has changed.

    Args:
        model: The model to show. The caller updates it.
        console: The console to print on; None: stderr.
        controls: The state that keys change; None: no keys are read.
        perform: Called with each command that keys give.
    """
    # The stream of now: the terminal replaces `sys.stderr` while it is open.
    console = console or Console(file=sys.stderr)
    fills = console.is_terminal and not console.is_dumb_terminal and is_foreground(console.file)  # type: ignore[arg-type]
    show = _draw_frames(model, console, controls, perform) if fills else _print_lines(model, console)
    task = asyncio.create_task(show, name="live view")
    try:
        yield
    finally:
        task.cancel()
        (error,) = await asyncio.gather(task, return_exceptions=True)
        # A terminal that is gone (OSError) ends the view and not the command.
        if isinstance(error, Exception) and not isinstance(error, OSError):
            say(f"the live view has failed: {explain(error)[0]}")


async def _draw_frames(
    model: LiveModel, console: Console, controls: Controls | None, perform: Callable[[Command], object]
) -> None:
    stream = console.file
    ascii_only = not console.encoding.lower().startswith("utf")
    changed = asyncio.Event()

    def press(key: Key) -> None:
        changed.set()
        if controls is None:
            return
        command = controls.press(key, ordered(model, controls.sort), model.experiment)
        if command is not None and command.action is Action.REDRAW:
            terminal.invalidate()
        elif command is not None:
            perform(command)

    with Terminal(stream, press if controls is not None else None, changed.set) as terminal:  # type: ignore[arg-type]
        while True:
            changed.clear()
            size = console.size
            view = render(model, size.width, size.height, time.monotonic(), ascii_only=ascii_only, controls=controls)
            with console.capture() as capture:
                console.print(Escaped(view), markup=False, highlight=False)
            terminal.draw(capture.get().splitlines()[: size.height])
            # A frame each quarter of a second, and at once after a key.
            with suppress(TimeoutError):
                async with asyncio.timeout(FRAME_SECONDS):
                    await changed.wait()


async def _print_lines(model: LiveModel, console: Console) -> None:
    def write(text: str) -> None:
        console.print(formatting.printable(text), markup=False, highlight=False, soft_wrap=True)

    last = ""
    try:
        while True:
            text = plain_line(model, time.monotonic())
            for incident in model.incidents.take():
                write(incident)
            if text != last:
                write(text)
                last = text
            await asyncio.sleep(LINE_SECONDS)
    finally:
        for incident in model.incidents.take():
            write(incident)


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
    silence = model.silence(now)
    waits = "" if silence else f"  {formatting.first_line(_waits(model, experiment))}".rstrip()
    pace = silence or f"{model.rate(now):.1f} reports/s"
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
        failed = failed_attempt(starting)
        return str(failed) if failed is not None else f"job {starting.id} {starting.reason}"
    return next((reason for _, _, reason in model.waits()), "")
