"""Tests of the output of `hopyard tree`."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from hopyard.plots.data.stages import Tree, totals, tree_of
from hopyard.policy import StageState, StageView
from hopyard_tools.commands.tree_text import WIDE, TreeLine, lines, shown

pytestmark = pytest.mark.quick

DONE, RUNNING, WAITING, UNWANTED = StageState


def multi(*values: float, at: int = 4) -> dict[str, object]:
    return {"sequence": {"multi_step": {"milestones": [at], "values": list(values)}}}


CONFIGURATIONS = {"1": {"lr": multi(0.1, 0.01), "seed": 1}, "2": {"lr": multi(0.1, 0.02), "seed": 1}}
STAGES = (
    StageView(1, None, 0, 4, DONE, ("1", "2"), reused=1, by="1", slot="n/1", seconds=2.5, saved=True),
    StageView(2, 1, 4, 6, RUNNING, ("1",), by="1", slot="n/1", seconds=1.0),
    StageView(3, 2, 6, 8, UNWANTED, ("1",), ("1",), seconds=1.0),
    StageView(4, 1, 4, 8, WAITING, ("2",), ("2",), seconds=75.0),
)


def said(tree: Tree, *, most: int | None = None, trial: str | None = None, width: int = 200) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(shown(tree, "now", most, trial, width))
    assert isinstance(console.file, io.StringIO)
    return [re.sub(" +", " ", line).rstrip() for line in console.file.getvalue().splitlines()]


def binary(depth: int, wide: int = 2) -> Tree:
    """Return a tree of waiting trials that branch `wide` times at each of `depth` positions."""
    count = wide**depth
    trials = [str(number) for number in range(1, count + 1)]

    def grow(own: list[str], position: int, parent: int | None) -> Iterator[StageView]:
        number = next(numbers)
        end = position + 1
        yield StageView(number, parent, position, end, WAITING, tuple(own), tuple(own) if end > depth else ())
        part = len(own) // wide
        if end <= depth:
            for index in range(wide):
                yield from grow(own[index * part : (index + 1) * part], end, number)

    numbers = iter(range(1, 10**6))
    return Tree("epochs", tuple(grow(trials, 0, None)), {})


def counted(found: list[TreeLine]) -> list[int]:
    return sorted(stage.number for line in found for stage in line.stages)


def test_a_line_tells_how_a_stage_stands() -> None:
    assert said(tree_of(STAGES, CONFIGURATIONS, "epochs")) == [
        "now",
        "2 trials, 16 epochs in all, 12 different: ✓ 4 done, ▶ 2 running, ○ 4 waiting, · 2 not wanted; 4 reused",
        "",
        "stage state trials reused time run trained for from here on",
        "0-4 ✓ done 2 1 2.5s 1 on n/1",
        "├─ 4-6 ▶ running 1 ~1s 1 on n/1 lr=0.01",
        "│ 6-8 · not wanted 1 ~1s 1",
        "└─ 4-8 ○ waiting 1 ~1m 15s 2 lr=0.02",
    ]


def test_what_earlier_searches_did_is_not_called_done_here() -> None:
    stages = (replace(STAGES[0], by="digits-ab12cd/1"), *STAGES[1:])
    assert "✓ 4 done (0 here), ▶ 2 running" in said(tree_of(stages, CONFIGURATIONS, "epochs"))[1]


def test_values_name_what_branches_differ_in_and_nothing_else() -> None:
    tree = tree_of(STAGES, CONFIGURATIONS)
    assert tree.values == {2: {"lr": 0.01}, 4: {"lr": 0.02}}


def test_trials_of_other_experiments_are_left_out() -> None:
    tree = tree_of(STAGES, {"2": CONFIGURATIONS["2"]})
    assert [(stage.number, stage.parent, stage.trials, stage.ends) for stage in tree.stages] == [
        (1, None, ("2",), ()),
        (2, 1, ("2",), ("2",)),
    ]
    assert totals(tree.stages).positions == 8


def test_a_large_tree_keeps_within_its_lines_and_forgets_no_stage() -> None:
    tree = binary(9)
    every = [stage.number for stage in tree.stages]
    for most in (1, 3, 10, 40, 200):
        found = lines(tree, most)
        assert len(found) <= max(most, 2)
        assert counted(found) == every
    assert len(lines(tree)) == len(every)
    assert any("stages put together" in line for line in said(tree, most=40))


def test_of_very_many_branches_the_largest_have_lines() -> None:
    tree = binary(1, wide=50)
    found = lines(tree, 100)
    assert len(found) == 1 + WIDE
    assert len(found[-1].stages) == 50 - (WIDE - 1)
    assert counted(found) == [stage.number for stage in tree.stages]


def test_one_trial_is_shown_with_what_branches_off_its_way() -> None:
    tree = binary(6)
    found = lines(tree, 10, "17")
    way = [line.stages[0] for line in found if not line.together and "17" in line.stages[0].trials]
    assert [(stage.start, stage.end) for stage in way] == [(n, n + 1) for n in range(7)]
    assert counted(found) == [stage.number for stage in tree.stages]
    assert all("17" not in stage.trials for line in found if line.together for stage in line.stages)


def test_a_narrow_terminal_cuts_only_the_values() -> None:
    tree = tree_of(STAGES, {"1": {**CONFIGURATIONS["1"], "x": "a" * 80}, "2": {**CONFIGURATIONS["2"], "x": "b" * 80}})
    found = said(tree, width=130)
    assert len(found) == 8
    assert found[5].startswith("├─ 4-6 ▶ running 1 ~1s 1 on n/1 lr=0.01")
    assert found[5].endswith("…")


def test_a_tree_as_deep_as_trials_are_long_is_shown() -> None:
    stages = [StageView(n + 1, n or None, n, n + 1, DONE, ("1",)) for n in range(5000)]
    found = lines(Tree("steps", tuple(stages), {}), 40)
    assert counted(found) == list(range(1, 5001))
    assert len(found) <= 40
