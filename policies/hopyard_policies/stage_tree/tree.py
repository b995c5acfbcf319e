"""The stage tree: what is to be trained now, generated anew when anything has changed (Hippo, Algorithm 1).

Three things differ from the paper's algorithm:

* A request on the way of another one ends a stage there: (A, 15) and (A, 35) give the stages 0-15 and 15-35.
* A request whose start is saved waits for no running stage that does not train just what it needs.
* A request that a running stage will pass is a save point of that stage, not a stage of its own.

So no position is in two stages, and none in a stage that is trained already and saved or being trained.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hopyard_policies.stage_tree.plan import Available, SearchPlan, StageNode

Request = tuple[str, int]
"""A trial that is wanted up to a position."""

Rank = tuple[int, int, str]
"""In which order requests are served: the nearer first, then the earlier trial."""

UnitTime = Callable[[str], float]
"""The estimated time (> 0) of a unit of a trial's training."""


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A run of a trial: it has come to `position` and will train up to `until`.

    Both are the same for one that is parked; `saving`: it saves the state at `position`, or will as it leaves.
    """

    trial: str
    position: int
    until: int
    saving: bool = False

    def passes(self, position: int) -> bool:
        """Whether the state at a position of its trial will be there through it."""
        return self.position < position <= self.until or (
            self.position == position and (self.saving or self.position == self.until)
        )


@dataclass(eq=False, slots=True)
class TreePoint:
    """A state that is needed: a position on the paths of some trials.

    Attributes:
        node: The node that it lies in; the root for position 0.
        position: Where.
        save: Who has it saved; None: nobody, or nothing needs to be (position 0).
        run: The run that will pass it; None: none.
        parent: The state from which it is to be trained; None: it is there, or comes with the run.
        children: Those that are trained from it.
        asked: The rank of the request that needed it first.
        requests: Trials that are wanted up to here.
        level: The longest time of training from it on, along any path.
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
    """What one run trains without a stop: from one state up to another."""

    start: TreePoint
    end: TreePoint

    @property
    def length(self) -> int:
        """Units."""
        return self.end.position - self.start.position


class StageTree:
    """What is to be trained to serve some requests.

    Args:
        plan: The search plan.
        requests: What is wanted and not trained yet.
        runs: What trains now, by trial.
        available: Whether a snapshot can be loaded.
        unit_time: How long a unit takes.
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
        """States that are there, or come with a run, from which there is something to train."""
        return [point for point in self._points.values() if point.parent is None and point.children]

    def points(self) -> Iterable[TreePoint]:
        """All states that are needed."""
        return self._points.values()

    def stages(self) -> list[Stage]:
        """All stages, in no special order."""
        return [Stage(point.parent, point) for point in self._points.values() if point.parent is not None]

    def ready(self) -> list[Stage]:
        """The stages that can start now, those with the longest way to go first."""
        found = [Stage(point, child) for point in self.roots() if point.ready for child in point.children]
        return sorted(found, key=lambda stage: -self.length_of(stage))

    def length_of(self, stage: Stage) -> float:
        """The longest time from a stage's start to an end behind it: its critical path."""
        return self._seconds(stage.start.position, stage.end) + stage.end.level

    def length_behind(self, trial: str) -> float:
        """The longest time from where a trial's run is to an end behind what is needed of it; 0: nothing is."""
        return self._ways.get(trial, 0.0)

    # ---------------------------------------------------------------------------------------------------------- building

    def _resolve(self, trial: str, position: int, asked: Rank) -> TreePoint:
        """The state of a trial at a position, and behind it the stages that lead there."""
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
        """The run that will pass a position of a node, or is parked there. The one that comes first, if there are several."""
        runs = [run for run in self._passing.get(id(node), ()) if run.passes(position)]
        return max(runs, key=lambda run: run.position).trial if runs else None

    def _before(self, node: StageNode, position: int) -> int:
        """The last position before one, at which a state is or will be there, or is wanted for others; else the node's start."""
        cuts = self._cuts.get(id(node), [])
        index = bisect_left(cuts, position)
        found = [node.start, *cuts[max(index - 1, 0) : index]]
        found += [saved for saved in self._saved(node) if saved < position]
        # Where a run parks, its state is there to go on from.
        found += [run.until for run in self._passing.get(id(node), ()) if run.until < position]
        return max(found)

    def _contract(self) -> None:
        """Joins stages at states that nobody asks for and where nothing branches off."""
        for key, point in list(self._points.items()):
            if point.parent is not None and len(point.children) == 1 and not point.requests:
                (child,) = point.children
                child.parent = point.parent
                point.parent.children[point.parent.children.index(point)] = child
                del self._points[key]

    def _level(self, point: TreePoint) -> float:
        """Fills in the levels from a state on. Not by recursion: a chain of stages may be long."""
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
