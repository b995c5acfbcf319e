"""`--watch` shows what has changed, until nothing changes any more."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from hopyard.cli.errors import WrongUse
from hopyard.cli.live.repetition import Drawing, check_watch, repeat

pytestmark = pytest.mark.quick


async def watched(console: Console, values: list[str]) -> list[str]:
    """Watch these values, one after the other, and return what was not drawn."""
    left = list(values)

    async def draw() -> Drawing:
        table = Table("job", box=None, pad_edge=False)
        table.add_row(left.pop(0))
        return table, not left

    await repeat(draw, console, seconds=0)
    return left


async def test_without_a_terminal_it_is_printed_when_it_has_changed() -> None:
    out = io.StringIO()
    assert await watched(Console(file=out), ["running", "running", "completed"]) == []
    assert out.getvalue() == "job\nrunning\njob\ncompleted\n"


async def test_on_a_terminal_it_is_redrawn_in_place() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=40, _environ={"TERM": "xterm"})
    await watched(console, ["running", "completed"])
    assert "running" in out.getvalue()
    assert out.getvalue().index("\x1b[2K") < out.getvalue().index("completed")  # the line is erased first


async def test_control_characters_are_escaped() -> None:
    plain, drawn = io.StringIO(), io.StringIO()
    await watched(Console(file=plain), ["\x1b[31m\x9b"])
    assert plain.getvalue() == "job\n\\x1b[31m\\x9b\n"
    await watched(Console(file=drawn, force_terminal=True, width=40, _environ={"TERM": "xterm"}), ["\x1b[31m\x9b"])
    assert "\\x1b[31m\\x9b" in drawn.getvalue()


def test_watch_is_not_for_programs() -> None:
    check_watch(True, False)
    check_watch(False, True)
    with pytest.raises(WrongUse, match="--watch and --json"):
        check_watch(True, True)
