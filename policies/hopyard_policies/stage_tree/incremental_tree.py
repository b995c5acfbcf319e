"""The stage tree by branches, kept from one decision to the next.

Trainings that differ from the beginning on have nothing to do with each other: their trials are on different branches of the
search plan. So what there is to train is made anew for a branch when something in it has changed, and not for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from hopyard_policies.inner_policy.trials import TrialState
from hopyard_policies.stage_tree.cost_model import CostModel
from hopyard_policies.stage_tree.plan import Available, Nodes, SearchPlan
from hopyard_policies.stage_tree.tree import Rank, Request, RunningTrial, Stage, StageTree

Wanted = tuple[str, int, int, str]
"""A trial, the position up to which an experiment wants it trained, where its tuner next decides on it, and the experiment."""


@dataclass(slots=True)
class Part:
    """What some trials of an experiment have to do with each branch.

    Attributes:
        open: Those that have not ended, by branch.
        errands: Those that are wanted, by branch.
        resting: Those that are not over, and have ended or are wanted no further as yet.
    """

    open: dict[int, list[str]] = field(default_factory=dict)
    errands: dict[int, list[Wanted]] = field(default_factory=dict)
    resting: list[TrialState] = field(default_factory=list)

    @classmethod
    def of(cls, experiment: str, states: Iterable[TrialState], plan: SearchPlan) -> Part:
        """That of these trials."""
        found = cls()
        for state in states:
            trial, errand = state.id, state.errand
            if not state.over and (errand is None or state.ended is not None):
                found.resting.append(state)
            if state.ended is None:
                found.open.setdefault(plan.branch(trial), []).append(trial)
            if errand is not None and not errand.parked:
                wanted = trial, errand.until, errand.next_decision(state.position), experiment
                found.errands.setdefault(plan.branch(trial), []).append(wanted)
        return found


@dataclass(slots=True)
class Inputs:
    """All that a branch depends on beside what a unit takes.

    Attributes:
        open: Trials that have not ended.
        errands: Those that are wanted, by running experiments.
        again: What must be trained once more.
        runs: What trains now.
        changes: Those of the plan's branch.
        saved: Snapshots of those who have any of it.
    """

    open: list[str] = field(default_factory=list)
    errands: list[Wanted] = field(default_factory=list)
    again: list[Request] = field(default_factory=list)
    runs: list[RunningTrial] = field(default_factory=list)
    changes: int = 0
    saved: list[Sequence[int]] = field(default_factory=list)


class Ready(NamedTuple):
    """A stage that can start now, in the order in which they do: the longest way first, then as they were asked for."""

    less: float
    asked: Rank
    follows: Rank
    stage: Stage

    @property
    def way(self) -> float:
        """The longest time from its start to an end behind it."""
        return -self.less


class TreeBranch:
    """What there is to train on a branch, and what follows from that alone.

    Args:
        plan: The search plan.
        inputs: What it depends on.
        open_nodes: Nodes that trials pass through which have not ended.
        available: Whether a snapshot can be loaded.
        times: What a unit takes.

    Attributes:
        open_nodes: As given.
        tree: Its stages.
        needed: For runs that somebody needs: up to where.
        left: Seconds of training that are left.
        behind: The ways that begin where runs pass, which go on.
    """

    def __init__(
        self, plan: SearchPlan, inputs: Inputs, open_nodes: Nodes, available: Available, times: CostModel
    ) -> None:
        self._plan, self._inputs, self.open_nodes = plan, inputs, open_nodes
        self._units: dict[str, float] = {}
        requests = [*inputs.again, *((trial, until) for trial, until, _, _ in inputs.errands)]

        def unit(trial: str) -> float:
            self._units[trial] = found = times.unit(trial)
            return found

        self.tree = StageTree(plan, requests, {run.trial: run for run in inputs.runs}, available, unit)
        self.needed: dict[str, int] = {}
        for point in self.tree.points():
            if point.run is not None:
                self.needed[point.run] = max(point.position, self.needed.get(point.run, 0))
        self.left = sum(stage.length * unit(stage.end.node.member) for stage in self.tree.stages())
        self.behind = [
            self.tree.length_of(Stage(point, child))
            for point in self.tree.roots()
            if point.run is not None
            for child in point.children
            if not plan.passes(point.run, child.node)
        ]
        self._ready = [
            Ready(-self.tree.length_of(stage), stage.start.asked, stage.end.asked, stage) for stage in self.tree.ready()
        ]

    def lasts(self, times: CostModel) -> bool:
        """Whether units take what they took."""
        return all(times.unit(trial) == seconds for trial, seconds in self._units.items())

    @property
    def begins(self) -> Rank | None:
        """Who asked first for something that is trained from the beginning; None: nobody does."""
        return next((each.asked for each in self._ready if not each.stage.start.position), None)

    def ready(self, begins: Rank | None) -> list[Ready]:
        """The stages that can start now. All that start at the beginning were asked for with the first of them."""
        if begins is None or begins == self.begins:
            return self._ready
        return [each if each.stage.start.position else each._replace(asked=begins) for each in self._ready]

    def parts(self, trial: str) -> list[int]:
        """Where trials that have not ended branch off a trial's way."""
        if trial not in self._parts:
            ways = self._plan.leaf(trial).path()
            path = {id(node) for node in ways}
            self._parts[trial] = [
                node.end for node in ways if any(id(c) in self.open_nodes and id(c) not in path for c in node.children)
            ]
        return self._parts[trial]

    @cached_property
    def _parts(self) -> dict[str, list[int]]:
        return {}

    @cached_property
    def _dues(self) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for trial, _, due, _ in self._inputs.errands:
            found.setdefault(id(self._plan.node(trial, due)), set()).add(due)
        return found

    def next_decision(self, trial: str, position: int, until: int) -> int:
        """Where beyond a position of a trial's way tuners next decide on a trial that passes there; `until`, if not before."""
        dues = (due for node in self._plan.leaf(trial).path() for due in self._dues.get(id(node), ()))
        return min([until, *(due for due in dues if due > position)])

    @cached_property
    def _wanted(self) -> dict[int, dict[str, int]]:
        """For each node up to where each experiment wants it; of those before it they want all."""
        wanted: dict[int, dict[str, int]] = {}
        for trial, top, _, experiment in self._inputs.errands:
            for node in self._plan.node(trial, top).path():
                here, until = wanted.setdefault(id(node), {}), min(top, node.end)
                if here.get(experiment, 0) >= until:
                    break
                here[experiment] = until
        return wanted

    def wanted(self, trial: str) -> dict[str, int]:
        """Up to where on a trial's way each experiment wants it trained."""
        found: dict[str, int] = {}
        for node in self._plan.leaf(trial).path():
            found.update((name, to) for name, to in self._wanted.get(id(node), {}).items() if name not in found)
        return found


def in_order(branches: Collection[TreeBranch]) -> list[Ready]:
    """The stages of all branches that can start now, the first of them first."""
    starts = [branch.begins for branch in branches]
    first = min((begins for begins in starts if begins is not None), default=None)
    return sorted(each for branch in branches for each in branch.ready(first))


class Forest:
    """All branches of a search plan.

    Args:
        plan: The search plan.
    """

    def __init__(self, plan: SearchPlan) -> None:
        self._plan = plan
        self._known: dict[int, tuple[Inputs, TreeBranch]] = {}
        self._open: dict[int, tuple[int, list[str], Nodes]] = {}
        self._measured = 0

    def open_nodes(self, number: int, inputs: Inputs) -> Nodes:
        """Nodes of a branch that trials pass through which have not ended; the same object as long as they are the same."""
        known = self._open.get(number)
        if known is None or known[:2] != (inputs.changes, inputs.open):
            leaves = {id(leaf): leaf for leaf in map(self._plan.leaf, inputs.open)}
            found = {id(node): node for leaf in leaves.values() for node in leaf.path()}
            known = self._open[number] = (inputs.changes, inputs.open, found)
        return known[2]

    def grow(self, inputs: Mapping[int, Inputs], available: Available, times: CostModel) -> dict[int, TreeBranch]:
        """The branches as they are now; those on which nothing has changed are what they were.

        Args:
            inputs: What each depends on; one that is not named has nothing to train.
            available: Whether a snapshot can be loaded.
            times: What a unit takes.
        """
        same = times.changes == self._measured
        self._measured = times.changes
        grown: dict[int, tuple[Inputs, TreeBranch]] = {}
        for number, given in inputs.items():
            known = self._known.get(number)
            if known is None or known[0] != given or not (same or known[1].lasts(times)):
                known = given, TreeBranch(self._plan, given, self.open_nodes(number, given), available, times)
            grown[number] = known
        self._known = grown
        return {number: branch for number, (_, branch) in grown.items()}
