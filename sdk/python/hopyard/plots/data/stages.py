"""A stage tree as something to show: the stages of an experiment's policy, and what sets branches apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hopyard.policy.stages import StageState, StageView
from hopyard.sequences import is_written, values_at


@dataclass(frozen=True, slots=True)
class Tree:
    """A stage tree.

    Attributes:
        unit: What a position counts.
        stages: The stages, parents before their children.
        values: By a stage's number, what is in force at its start and sets it apart from the others that begin there.
    """

    unit: str
    stages: tuple[StageView, ...]
    values: Mapping[int, Mapping[str, Any]]

    def children(self) -> dict[int | None, list[StageView]]:
        """The stages that follow on each, by its number; under None those that begin where training begins."""
        found: dict[int | None, list[StageView]] = {}
        for stage in self.stages:
            found.setdefault(stage.parent, []).append(stage)
        return found


@dataclass(frozen=True, slots=True)
class Totals:
    """Positions of a tree.

    Attributes:
        trials: How many trials there are.
        positions: What they train if each trains alone.
        unique: What is different of that.
        done, running, waiting, unwanted: How much of that stands how.
        reused: What trials have from others, counted for each.
        earlier: How much of what is done was done by earlier searches.
    """

    trials: int
    positions: int
    unique: int
    done: int
    running: int
    waiting: int
    unwanted: int
    reused: int
    earlier: int


def tree_of(
    stages: Sequence[StageView], configurations: Mapping[str, Mapping[str, Any]], unit: str = "position"
) -> Tree:
    """The tree of the trials whose configurations are given; stages of other trials only are left out.

    Args:
        stages: Parents before their children.
        configurations: By trial.
        unit: What a position counts.
    """
    numbers: dict[int, int] = {}
    own: list[StageView] = []
    for stage in stages:
        trials = tuple(trial for trial in stage.trials if trial in configurations)
        if trials:
            numbers[stage.number] = len(own) + 1
            parent = None if stage.parent is None else numbers[stage.parent]
            ends = tuple(trial for trial in stage.ends if trial in configurations)
            reusing = tuple(trial for trial in stage.reusing if trial in configurations)
            reused = len(reusing) if stage.reusing else stage.reused
            number = len(own) + 1
            own.append(
                replace(stage, number=number, parent=parent, trials=trials, ends=ends, reused=reused, reusing=reusing)
            )
    tree = Tree(unit, tuple(own), {})
    values: dict[int, dict[str, Any]] = {}
    for siblings in tree.children().values():
        if len(siblings) > 1:
            at = [_flat(values_at(configurations[stage.trials[0]], stage.start)) for stage in siblings]
            names = sorted({name for one in at for name in one})
            differ = [name for name in names if any(one.get(name) != at[0].get(name) for one in at)]
            for stage, one in zip(siblings, at, strict=True):
                values[stage.number] = {name: one[name] for name in differ if name in one}
    return replace(tree, values=values)


def totals(stages: Sequence[StageView]) -> Totals:
    """What stages come to."""

    def positions(state: StageState) -> int:
        return sum(stage.length for stage in stages if stage.state is state)

    trials = {trial for stage in stages for trial in stage.trials}
    return Totals(
        trials=len(trials),
        positions=sum(stage.length * len(stage.trials) for stage in stages),
        unique=sum(stage.length for stage in stages),
        done=positions(StageState.DONE),
        running=positions(StageState.RUNNING),
        waiting=positions(StageState.WAITING),
        unwanted=positions(StageState.UNWANTED),
        reused=sum(stage.length * stage.reused for stage in stages),
        earlier=sum(stage.length for stage in stages if stage.state is StageState.DONE and stage.by not in trials),
    )


def _flat(values: Mapping[str, Any], group: str = "") -> dict[str, Any]:
    """Values by dotted name."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and not is_written(value):
            found.update(_flat(value, f"{group}{name}."))
        else:
            found[f"{group}{name}"] = value
    return found
