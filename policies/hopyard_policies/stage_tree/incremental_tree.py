"""The stage tree by branches, reused between decisions.

Trials that differ from the first position are on different branches of the search plan and do not affect each other. A
branch is recomputed only when something in it has changed.
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
"""A trial, the position up to which an experiment wants it trained, the tuner's next decision on it, and the experiment."""


@dataclass(slots=True)
class Part:
    """The trials of one experiment, grouped by branch.

    Attributes:
        open: Trials that have not ended.
        errands: Trials that are wanted further.
        resting: Trials whose jobs have not ended, and that have ended for the tuner or are not wanted further now.
    """

    open: dict[int, list[str]] = field(default_factory=dict)
    errands: dict[int, list[Wanted]] = field(default_factory=dict)
    resting: list[TrialState] = field(default_factory=list)

    @classmethod
    def of(cls, experiment: str, states: Iterable[TrialState], plan: SearchPlan) -> Part:
        """Group these trials."""
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
    """All inputs of a branch except the time of a unit.

    Attributes:
        open: Trials that have not ended.
        errands: Trials that running experiments want further.
        again: Positions that must be trained again.
        runs: Runs of its trials.
        changes: The counter of changes of the plan's branch.
        saved: Snapshots of the jobs that have any on this branch.
    """

    open: list[str] = field(default_factory=list)
    errands: list[Wanted] = field(default_factory=list)
    again: list[Request] = field(default_factory=list)
    runs: list[RunningTrial] = field(default_factory=list)
    changes: int = 0
    saved: list[Sequence[int]] = field(default_factory=list)


class Ready(NamedTuple):
    """A stage that can start now. The sort order is: longest way first, then order of requests."""

    less: float
    asked: Rank
    follows: Rank
    stage: Stage

    @property
    def way(self) -> float:
        """The longest time from its start to an end behind it."""
        return -self.less


class TreeBranch:
    """The stages of one branch and values derived from them.

    Args:
        plan: The search plan.
        inputs: The inputs of the branch.
        open_nodes: Nodes on the paths of open trials.
        available: Returns whether a snapshot can be loaded.
        times: The time of a unit.

    Attributes:
        open_nodes: As given.
        tree: The stages.
        needed: For each needed run, the position up to which it is needed.
        left: Seconds of training that remain.
        behind: Lengths of the ways that branch off continuing runs.
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
        """Return whether the times of units are unchanged."""
        return all(times.unit(trial) == seconds for trial, seconds in self._units.items())

    @property
    def begins(self) -> Rank | None:
        """The rank of the first request that must be trained from scratch; None: there is none."""
        return next((each.asked for each in self._ready if not each.stage.start.position), None)

    def ready(self, begins: Rank | None) -> list[Ready]:
        """Return the stages that can start now. Stages that start from scratch get the rank `begins`, the first on any branch."""
        if begins is None or begins == self.begins:
            return self._ready
        return [each if each.stage.start.position else each._replace(asked=begins) for each in self._ready]

    def parts(self, trial: str) -> list[int]:
        """Return the positions on a trial's path where open trials branch off."""
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
        """Return the next position beyond `position` at which a tuner decides on a trial that passes it; at most `until`."""
        dues = (due for node in self._plan.leaf(trial).path() for due in self._dues.get(id(node), ()))
        return min([until, *(due for due in dues if due > position)])

    @cached_property
    def _wanted(self) -> dict[int, dict[str, int]]:
        """The position up to which each experiment wants a node. Nodes before it are wanted completely."""
        wanted: dict[int, dict[str, int]] = {}
        for trial, top, _, experiment in self._inputs.errands:
            for node in self._plan.node(trial, top).path():
                here, until = wanted.setdefault(id(node), {}), min(top, node.end)
                if here.get(experiment, 0) >= until:
                    break
                here[experiment] = until
        return wanted

    def wanted(self, trial: str) -> dict[str, int]:
        """Return the position on a trial's path up to which each experiment wants it trained."""
        found: dict[str, int] = {}
        for node in self._plan.leaf(trial).path():
            found.update((name, to) for name, to in self._wanted.get(id(node), {}).items() if name not in found)
        return found


def in_order(branches: Collection[TreeBranch]) -> list[Ready]:
    """Return the stages of all branches that can start now, in order."""
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
        """Return the nodes of a branch on the paths of open trials; the same object while they are unchanged."""
        known = self._open.get(number)
        if known is None or known[:2] != (inputs.changes, inputs.open):
            leaves = {id(leaf): leaf for leaf in map(self._plan.leaf, inputs.open)}
            found = {id(node): node for leaf in leaves.values() for node in leaf.path()}
            known = self._open[number] = (inputs.changes, inputs.open, found)
        return known[2]

    def grow(self, inputs: Mapping[int, Inputs], available: Available, times: CostModel) -> dict[int, TreeBranch]:
        """Return the current branches, recomputing those whose inputs have changed.

        Args:
            inputs: The inputs of each branch; a missing branch has nothing to train.
            available: Returns whether a snapshot can be loaded.
            times: The time of a unit.
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
