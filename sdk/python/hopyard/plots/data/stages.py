"""Data of the plot of a stage tree (Hippo, section 3.2): its stages, and the hyperparameter values in which branches differ.

A stage is a range of positions that a set of trials trains identically. A trial is a job with its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hopyard.policy.stages import StageState, StageView
from hopyard.sequences import is_written, values_at


@dataclass(frozen=True, slots=True)
class Tree:
    """The stage tree of an experiment.

    Attributes:
        unit: What one position is, such as an epoch.
        stages: The stages; a parent comes before its children.
        values: For each stage that has siblings, by the stage's number: the hyperparameters in which the siblings differ, with their
            values at the stage's start.
    """

    unit: str
    stages: tuple[StageView, ...]
    values: Mapping[int, Mapping[str, Any]]

    def children(self) -> dict[int | None, list[StageView]]:
        """Return the child stages of each stage, by the parent's number. Stages that begin at position 0 are under the key None."""
        found: dict[int | None, list[StageView]] = {}
        for stage in self.stages:
            found.setdefault(stage.parent, []).append(stage)
        return found


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of positions over a stage tree.

    Attributes:
        trials: Number of trials.
        positions: Positions to train if no trial shared a stage with another one.
        unique: Positions of all stages, each stage counted once.
        done, running, waiting, unwanted: The part of `unique` in stages whose state (`StageState`) has this name: trained, in
            training or about to be, needed but without a run, and needed by no trial.
        reused: Positions that trials did not train because another trial did, summed over trials.
        earlier: The part of `done` that was trained by trials of other experiments.
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
    """Return the stage tree of some trials. Stages that none of these trials passes through are left out.

    Args:
        stages: Stages of these and possibly other trials; a parent comes before its children.
        configurations: The configuration of each trial to include, by the trial's id.
        unit: What one position is, such as an epoch.
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
    """Return the sums of positions over `stages`. DONE stages whose `by` is a trial that no stage names are `earlier`."""

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
    """Return nested values as one dict with dotted names (`optimizer.rate`), each name after the prefix `group`."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and not is_written(value):
            found.update(_flat(value, f"{group}{name}."))
        else:
            found[f"{group}{name}"] = value
    return found
