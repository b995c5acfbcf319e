"""Repeats the output of a command that only shows something and changes nothing, for its option `--watch`."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from rich.console import Console, RenderableType
from rich.live import Live

from hopyard.cli.errors import WrongUse
from hopyard.cli.live.style import Escaped
from hopyard.cli.output import reader_closed

WATCH_SECONDS: Final = 1.0
"""Seconds between two queries."""

Drawing = tuple[RenderableType, bool]
"""What is shown, and whether it will not change any more."""


def check_watch(watch: bool, json: bool) -> None:
    """Raise WrongUse if a command line has both --watch and --json."""
    if watch and json:
        raise WrongUse(
            "--watch and --json cannot be given together: --json prints one document; call the command again"
        )


async def repeat(
    draw: Callable[[], Awaitable[Drawing]], console: Console | None = None, seconds: float = WATCH_SECONDS
) -> None:
    """Call `draw` repeatedly and show its output, until `draw` returns that the output will not change any more.

    On a terminal the output is redrawn in place; otherwise it is printed as text each time it has changed. Errors of `draw` are
    raised. If the reader of stdout has closed it, BrokenPipeError is raised.

    Args:
        draw: Queries and formats the output. Returns it, and whether it will not change any more.
        console: The console to print on; None: stdout.
        seconds: Seconds between two calls of `draw`.
    """
    console = console or Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, auto_refresh=False, redirect_stdout=False) as live:
            await _until_over(draw, lambda shown: live.update(Escaped(shown), refresh=True), seconds)
        return
    last = ""

    def write(shown: RenderableType) -> None:
        nonlocal last
        text = _text(shown)
        if text != last:
            console.file.write(text)
            console.file.flush()
        last = text

    await _until_over(draw, write, seconds)


async def _until_over(
    draw: Callable[[], Awaitable[Drawing]], show: Callable[[RenderableType], None], seconds: float
) -> None:
    while True:
        shown, over = await draw()
        show(shown)
        if over:
            return
        await asyncio.sleep(seconds)
        if reader_closed(sys.stdout):
            raise BrokenPipeError


def _text(shown: RenderableType) -> str:
    """Return an output of `draw` as plain text, with lines that are neither truncated nor wrapped."""
    console = Console(file=io.StringIO(), width=100_000, highlight=False)
    console.print(Escaped(shown), markup=False)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"  # type: ignore[attr-defined]
