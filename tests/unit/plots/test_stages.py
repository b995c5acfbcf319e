"""Tests of the plot of a stage tree."""

from __future__ import annotations

from pathlib import Path

from hopyard.plots import figure, save
from hopyard.plots.data.stages import Tree
from hopyard.policy import StageState, StageView
from tests.unit.plots.test_figures import legend, named, texts

DONE, RUNNING, WAITING, UNWANTED = StageState

TREE = Tree(
    "epochs",
    (
        StageView(1, None, 0, 40, DONE, ("1", "2", "3"), reused=2, by="1"),
        StageView(2, 1, 40, 80, RUNNING, ("1",), by="1", slot="n/1"),
        StageView(3, 2, 80, 100, UNWANTED, ("1",), ("1",)),
        StageView(4, 1, 40, 100, WAITING, ("2",), ("2",)),
        StageView(5, 1, 40, 100, DONE, ("3",), ("3",), by="3"),
    ),
    {2: {"lr": 0.1}, 4: {"lr": 0.2}, 5: {"lr": 0.3}},
)


def wide(count: int) -> Tree:
    """Return a tree of `count` - 1 trials that share nothing."""
    return Tree("steps", tuple(StageView(n, None, 0, 9, WAITING, (str(n),), (str(n),)) for n in range(1, count)), {})


def test_each_state_has_bars_of_its_own_and_a_legend() -> None:
    (axes,) = figure(TREE).axes
    assert legend(axes) == ["40 done, for several", "60 done, for one", "40 running", "60 waiting", "20 not wanted"]
    for name in ("done, for several", "done, for one", "running", "waiting", "not wanted"):
        (bars,) = named(axes, name)
        assert len(bars.get_paths()) == 1
    (running,) = named(axes, "running")
    box = running.get_paths()[0].get_extents()
    assert (box.x0, box.x1) == (40, 80)
    assert running.get_hatch()


def test_ends_name_their_trials_and_branches_their_values() -> None:
    (axes,) = figure(TREE).axes
    said = [text.strip() for text in texts(axes)]
    assert {"1", "2", "3"} <= set(said)
    assert {"lr=0.1  1 on n/1", "lr=0.2", "lr=0.3"} <= set(said)


def test_of_hundreds_of_trials_none_is_named() -> None:
    made = figure(wide(700))
    (axes,) = made.axes
    assert texts(axes) == []
    assert made.get_figheight() < 16


def test_the_same_tree_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        save(TREE, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
