"""The stage tree by branches, reused between up-calls.

Trials whose hyperparameters differ at the first position are on different branches of the search plan and do not affect
each other. A branch is recomputed only when its inputs have changed. The critical path of a stage is the longest chain of stages that
begins with it, in seconds of training.
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
    """The trials of one experiment, grouped by branch of the search plan.

    The trials of a branch are equal at their first position. Branches are numbered (`SearchPlan.branch`).

    Attributes:
        open: By branch, the trials that have not ended.
        virtual_runs: By branch, one tuple for each trial that the experiment wants trained further: the trial, the position up to
            which it wants this, the position of the tuner's next decision on the trial, and the experiment.
        resting: Trials whose jobs have not ended, and that their tuner has ended or does not want trained further now.
    """

    open: dict[int, list[str]] = field(default_factory=dict)
    virtual_runs: dict[int, list[Wanted]] = field(default_factory=dict)
    resting: list[TrialState] = field(default_factory=list)

    @classmethod
    def of(cls, experiment: str, states: Iterable[TrialState], plan: SearchPlan) -> Part:
        """Return the trials `states` of an experiment, grouped by branch of `plan`."""
        found = cls()
        for state in states:
            trial, virtual_run = state.id, state.virtual_run
            if not state.over and (virtual_run is None or state.ended is not None):
                found.resting.append(state)
            if state.ended is None:
                found.open.setdefault(plan.branch(trial), []).append(trial)
            if virtual_run is not None and not virtual_run.parked:
                wanted = trial, virtual_run.until, virtual_run.next_decision(state.position), experiment
                found.virtual_runs.setdefault(plan.branch(trial), []).append(wanted)
        return found


@dataclass(slots=True)
class Inputs:
    """The values from which the stages of one branch of the search plan are computed, except the measured seconds of a unit.

    The stages are computed again only if these values have changed since the last up-call. The trials of a branch are equal at
    their first position.

    Attributes:
        open: Trials that have not ended.
        virtual_runs: One tuple for each trial that a running experiment wants trained further: the trial, the position up to which
            the experiment wants this, the position of the tuner's next decision on the trial, and the experiment.
        again: Pairs of a trial that its tuner has completed and a position. No available training reaches this position any more, so
            the trial must be trained up to it again.
        runs: The current runs of trials on the branch.
        changes: The number of changes of this branch in the search plan.
        saved: The snapshots of each job that has any on this branch.
    """

    open: list[str] = field(default_factory=list)
    virtual_runs: list[Wanted] = field(default_factory=list)
    again: list[Request] = field(default_factory=list)
    runs: list[RunningTrial] = field(default_factory=list)
    changes: int = 0
    saved: list[Sequence[int]] = field(default_factory=list)


class Ready(NamedTuple):
    """A stage that can start now. Instances sort by critical path, longest first, then by the rank of requests.

    The critical path is the longest chain of stages that begins with the stage. The rank is the order in which requests for
    training are served (`Rank`).

    Attributes:
        less: The length of the critical path in seconds, negated so that the longest sorts first.
        asked: The rank of the first request that needs the state at the start of the stage.
        follows: The rank of the first request that needs the state at the end of the stage.
        stage: The stage.
    """

    less: float
    asked: Rank
    follows: Rank
    stage: Stage

    @property
    def way(self) -> float:
        """The length of the critical path: seconds from the start of the stage to the end of its longest chain of stages."""
        return -self.less


class TreeBranch:
    """The stages of one branch of the search plan, and values derived from them.

    The trials of a branch are equal at their first position; those of different branches share no training.

    Args:
        plan: The search plan.
        inputs: The inputs of the branch.
        open_nodes: Nodes on the paths of trials that have not ended.
        available: Returns whether a snapshot can be loaded.
        times: Estimates the seconds that a unit of a trial takes.

    Attributes:
        open_nodes: As given.
        tree: The stages.
        needed: By trial, for each current run whose training serves a request: the last position that requests need from it.
        left: Seconds of training of all stages together.
        behind: Lengths of critical paths in seconds: one for each stage that starts where it branches off the path of a current run,
            from its start to the end of the longest chain of stages that begins with it.
    """

    def __init__(
        self, plan: SearchPlan, inputs: Inputs, open_nodes: Nodes, available: Available, times: CostModel
    ) -> None:
        self._plan, self._inputs, self.open_nodes = plan, inputs, open_nodes
        self._units = units = dict[str, float]()
        requests = [*inputs.again, *((trial, until) for trial, until, _, _ in inputs.virtual_runs)]

        def unit(trial: str) -> float:
            units[trial] = found = times.unit(trial)
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
        """Return whether the seconds of a unit by `times` are those from which this branch was computed, so that it is still valid."""
        return all(times.unit(trial) == seconds for trial, seconds in self._units.items())

    @property
    def begins(self) -> Rank | None:
        """The rank (order of service) of the first request whose training can start from position 0 now; None: there is none."""
        return next((each.asked for each in self._ready if not each.stage.start.position), None)

    def ready(self, begins: Rank | None) -> list[Ready]:
        """Return the stages that can start now.

        Args:
            begins: The rank (order of service) that all stages that start from position 0 get, so that those of all branches sort
                alike; None: each stage has its own rank.
        """
        if begins is None or begins == self.begins:
            return self._ready
        return [each if each.stage.start.position else each._replace(asked=begins) for each in self._ready]

    def parts(self, trial: str) -> list[int]:
        """Return the positions on a trial's path where trials that have not ended branch off."""
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
        for trial, _, due, _ in self._inputs.virtual_runs:
            found.setdefault(id(self._plan.node(trial, due)), set()).add(due)
        return found

    def next_decision(self, trial: str, position: int, until: int) -> int:
        """Return the next position on a trial's path at which a tuner decides on any trial whose path contains this position.

        Args:
            trial: The trial whose path is followed.
            position: Only positions after it are considered.
            until: Only positions before it are considered; it is the result if there is none.
        """
        dues = (due for node in self._plan.leaf(trial).path() for due in self._dues.get(id(node), ()))
        return min([until, *(due for due in dues if due > position)])

    @cached_property
    def _wanted(self) -> dict[int, dict[str, int]]:
        """For each node on the path of a wanted trial, by `id(node)`: up to which position in it each experiment wants training.

        The inner mappings are by id of the experiment. The position is the end of the node unless the wanted training ends within it.
        """
        wanted: dict[int, dict[str, int]] = {}
        for trial, top, _, experiment in self._inputs.virtual_runs:
            for node in self._plan.node(trial, top).path():
                here, until = wanted.setdefault(id(node), {}), min(top, node.end)
                if here.get(experiment, 0) >= until:
                    break
                here[experiment] = until
        return wanted

    def wanted(self, trial: str) -> dict[str, int]:
        """Return up to which position each experiment wants the training on a trial's path, by id of the experiment."""
        found: dict[str, int] = {}
        for node in self._plan.leaf(trial).path():
            found.update((name, to) for name, to in self._wanted.get(id(node), {}).items() if name not in found)
        return found


def in_order(branches: Collection[TreeBranch]) -> list[Ready]:
    """Return the stages of all branches that can start now, in the sort order of `Ready`."""
    starts = [branch.begins for branch in branches]
    first = min((begins for begins in starts if begins is not None), default=None)
    return sorted(each for branch in branches for each in branch.ready(first))


class Forest:
    """The stage tree: all branches of a search plan, cached between up-calls.

    Args:
        plan: The search plan.
    """

    def __init__(self, plan: SearchPlan) -> None:
        self._plan = plan
        self._known: dict[int, tuple[Inputs, TreeBranch]] = {}
        self._open: dict[int, tuple[int, list[str], Nodes]] = {}
        self._measured = 0

    def open_nodes(self, number: int, inputs: Inputs) -> Nodes:
        """Return the nodes on the paths of those trials of branch `number` that have not ended; the same object while unchanged."""
        known = self._open.get(number)
        if known is None or known[:2] != (inputs.changes, inputs.open):
            leaves = {id(leaf): leaf for leaf in map(self._plan.leaf, inputs.open)}
            found = {id(node): node for leaf in leaves.values() for node in leaf.path()}
            known = self._open[number] = (inputs.changes, inputs.open, found)
        return known[2]

    def grow(self, inputs: Mapping[int, Inputs], available: Available, times: CostModel) -> dict[int, TreeBranch]:
        """Return the current branches by number, recomputing those whose inputs have changed.

        Args:
            inputs: The inputs of each branch; a missing branch has nothing to train.
            available: Returns whether a snapshot can be loaded.
            times: Estimates the seconds that a unit of a trial takes.
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
