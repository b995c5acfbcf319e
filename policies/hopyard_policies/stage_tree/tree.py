"""The stage tree: what must be trained now, computed from the search plan and the requests (Hippo, Algorithm 1).

Three differences from the paper's algorithm:

* A request on the path of another one ends a stage there: (A, 15) and (A, 35) give the stages 0-15 and 15-35.
* A request whose start is saved does not wait for a running stage, unless that trains exactly what it needs.
* A request that a running stage will pass becomes a save point of that stage, not a stage.

So no position is in two stages, and none is in a stage if it is trained and saved, or being trained.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hopyard_policies.stage_tree.plan import Available, SearchPlan, StageNode

Request = tuple[str, int]
"""A trial and the position up to which it is wanted."""

Rank = tuple[int, int, str]
"""The order in which requests are served: by position, then by trial."""

UnitTime = Callable[[str], float]
"""Returns the estimated time (> 0) of a unit of a trial."""


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A run of a trial, which has reached `position` and will train up to `until`.

    Both are equal if it is parked. `saving`: it saves the state at `position`, now or as it leaves.
    """

    trial: str
    position: int
    until: int
    saving: bool = False

    def passes(self, position: int) -> bool:
        """Return whether this run will produce the state of its trial at a position."""
        return self.position < position <= self.until or (
            self.position == position and (self.saving or self.position == self.until)
        )


@dataclass(eq=False, slots=True)
class TreePoint:
    """A state that is needed: a position on the paths of some trials.

    Attributes:
        node: The node that contains it; the root for position 0.
        position: The position.
        asked: The rank of the first request that needs it.
        save: A job that has it saved; None: none, or position 0.
        run: The run that will reach it; None: none.
        parent: The state from which it is trained; None: it exists or the run will reach it.
        children: The states that are trained from it.
        requests: Trials that are wanted up to here.
        level: The longest training time from it along any path.
    """

    node: StageNode
    position: int
    asked: Rank
    save: str | None = None
    run: str | None = None
    parent: TreePoint | None = None
    children: list[TreePoint] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    level: float = 0.0

    @property
    def ready(self) -> bool:
        """Whether training can start from it now."""
        return self.parent is None and self.run is None


@dataclass(frozen=True, slots=True)
class Stage:
    """A piece of training from one state to another, done by one run without a stop."""

    start: TreePoint
    end: TreePoint

    @property
    def length(self) -> int:
        """The number of units."""
        return self.end.position - self.start.position


class StageTree:
    """The stages that must be trained to serve the requests.

    Args:
        plan: The search plan.
        requests: What is wanted and not trained yet.
        runs: Current runs by trial.
        available: Returns whether a snapshot can be loaded.
        unit_time: Returns the time of a unit.
    """

    def __init__(
        self,
        plan: SearchPlan,
        requests: Iterable[Request],
        runs: Mapping[str, RunningTrial],
        available: Available,
        unit_time: UnitTime,
    ) -> None:
        self._plan, self._unit_time = plan, unit_time
        self._runs = runs
        self._points: dict[tuple[int, int], TreePoint] = {}
        self._cuts: dict[int, list[int]] = {}
        self._saves: dict[int, dict[int, str]] = {}
        self._passing: dict[int, list[RunningTrial]] = {}
        self._available = available
        for run in runs.values():
            for node in plan.leaf(run.trial).path():
                self._passing.setdefault(id(node), []).append(run)
        wanted = sorted((position, len(trial), trial) for trial, position in set(requests))
        for position, _, trial in wanted:
            node = plan.node(trial, position)
            cuts = self._cuts.setdefault(id(node), [])
            if position not in cuts:
                insort(cuts, position)
        for rank in wanted:
            self._resolve(rank[2], rank[0], rank).requests.append(rank[2])
        self._contract()
        self._ways: dict[str, float] = {}
        for point in self._points.values():
            if point.parent is None:
                self._level(point)
            if point.run is not None:
                way = (point.position - runs[point.run].position) * unit_time(point.run) + point.level
                self._ways[point.run] = max(way, self._ways.get(point.run, 0.0))

    def roots(self) -> list[TreePoint]:
        """Return the states that exist, or that a run will reach, from which something must be trained."""
        return [point for point in self._points.values() if point.parent is None and point.children]

    def points(self) -> Iterable[TreePoint]:
        """Return all needed states."""
        return self._points.values()

    def stages(self) -> list[Stage]:
        """Return all stages, in no particular order."""
        return [Stage(point.parent, point) for point in self._points.values() if point.parent is not None]

    def ready(self) -> list[Stage]:
        """Return the stages that can start now, longest way first."""
        found = [Stage(point, child) for point in self.roots() if point.ready for child in point.children]
        return sorted(found, key=lambda stage: -self.length_of(stage))

    def length_of(self, stage: Stage) -> float:
        """Return the longest time from a stage's start to an end behind it: its critical path."""
        return self._seconds(stage.start.position, stage.end) + stage.end.level

    def length_behind(self, trial: str) -> float:
        """Return the longest time from a trial's run to an end behind what is needed of it; 0: nothing is needed."""
        return self._ways.get(trial, 0.0)

    # ---------------------------------------------------------------------------------------------------------- building

    def _resolve(self, trial: str, position: int, asked: Rank) -> TreePoint:
        """Return the state of a trial at a position; create it with the stages that lead to it."""
        if position == 0:
            return self._points.setdefault((id(self._plan.root), 0), TreePoint(self._plan.root, 0, asked))
        node = self._plan.node(trial, position)
        key = (id(node), position)
        point = self._points.get(key)
        if point is not None:
            return point
        point = self._points[key] = TreePoint(node, position, asked)
        point.save = self._saved(node).get(position)
        if point.save is None:
            point.run = self._passing_run(node, position)
        if point.save is None and point.run is None:
            point.parent = self._resolve(trial, self._before(node, position), asked)
            point.parent.children.append(point)
        return point

    def _saved(self, node: StageNode) -> dict[int, str]:
        if id(node) not in self._saves:
            self._saves[id(node)] = dict(self._plan.saves(node, self._available))
        return self._saves[id(node)]

    def _passing_run(self, node: StageNode, position: int) -> str | None:
        """Return the run that will reach a position of a node or is parked there; of several, the first to arrive."""
        runs = [run for run in self._passing.get(id(node), ()) if run.passes(position)]
        return max(runs, key=lambda run: run.position).trial if runs else None

    def _before(self, node: StageNode, position: int) -> int:
        """Return the last position before `position` where a state exists, will exist or is wanted; else the node's start."""
        cuts = self._cuts.get(id(node), [])
        index = bisect_left(cuts, position)
        found = [node.start, *cuts[max(index - 1, 0) : index]]
        found += [saved for saved in self._saved(node) if saved < position]
        # The state is available where a run parks.
        found += [run.until for run in self._passing.get(id(node), ()) if run.until < position]
        return max(found)

    def _contract(self) -> None:
        """Merge stages at states that no request needs and where nothing branches off."""
        for key, point in list(self._points.items()):
            if point.parent is not None and len(point.children) == 1 and not point.requests:
                (child,) = point.children
                child.parent = point.parent
                point.parent.children[point.parent.children.index(point)] = child
                del self._points[key]

    def _level(self, point: TreePoint) -> float:
        """Compute the levels of a state and all behind it; iteratively, because a chain of stages may be long."""
        order, stack = [], [point]
        while stack:
            order.append(stack.pop())
            stack.extend(order[-1].children)
        for each in reversed(order):
            each.level = max(
                (self._seconds(each.position, child) + child.level for child in each.children), default=0.0
            )
        return point.level

    def _seconds(self, start: int, end: TreePoint) -> float:
        return (end.position - start) * self._unit_time(end.node.member)
