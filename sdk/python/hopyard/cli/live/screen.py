"""Where the live view is drawn: a terminal, or lines of plain text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from rich.console import Console
from rich.live import Live

from hopyard.cli.live.model import LiveModel
from hopyard.cli.live.plain import plain_line
from hopyard.cli.live.render import render

FRAME_SECONDS: Final = 0.25
LINE_SECONDS: Final = 5.0


@asynccontextmanager
async def shown(model: LiveModel, console: Console | None = None) -> AsyncIterator[None]:
    """Show a model on stderr for as long as the context is open: drawn live on a terminal, else a line every few seconds.

    Args:
        model: What to show; others change it meanwhile.
        console: Instead of stderr's.
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
        # One line less, so that the cursor's line does not make the terminal scroll.
        return render(model, width, height - 1, time.monotonic(), ascii_only=ascii_only)

    # It vanishes at the end, when the final table takes its place.
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
