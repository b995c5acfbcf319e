"""Tests of the output of `hopyard rungs`."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from hopyard.policy import ENDLESS
from hopyard.policy.rungs import Rung, RungEntry
from hopyard_tools.commands.rungs import Summary, tables
from hopyard_tools.commands.rungs import _plain as plain

pytestmark = pytest.mark.quick


def shown(rungs: list[Rung]) -> list[list[str]]:
    """Return the lines of the table of rungs, split into words."""
    console = Console(file=io.StringIO(), width=120)
    console.print(tables(rungs, "", jobs=False))
    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    return [line for line in lines if line and line[0].isdigit()]


def ladder(*positions: int) -> list[Rung]:
    standings = ([RungEntry("1", 0.5, True), RungEntry("2", 0.25)], [RungEntry("1", 0.75)])
    return [
        Rung(0, number, position, tuple(standings[number]) if number < 2 else ())
        for number, position in enumerate(positions)
    ]


def test_an_endless_ladder_is_shown_up_to_its_first_empty_rung() -> None:
    rows = shown(ladder(1, 4, 16, 64, 256, ENDLESS))
    assert [(row[0], row[1]) for row in rows] == [("2", "16"), ("1", "4"), ("0", "1")]


def test_a_ladder_that_ends_is_shown_whole() -> None:
    assert [row[1] for row in shown(ladder(1, 4, 16, 64))] == ["64", "16", "4", "1"]


def test_the_end_of_an_endless_ladder_has_no_number() -> None:
    rungs = ladder(1, 4, ENDLESS)
    assert shown(rungs)[0][:2] == ["2", "∞"]
    assert [plain(Summary.of(rung))["position"] for rung in rungs] == [1, 4, None]
