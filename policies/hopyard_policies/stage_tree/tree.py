"""The stage tree: what must be trained now, computed from the search plan and the requests (Hippo, Algorithm 1).

A request is a trial and the position up to which it must be trained. Three differences from the paper's algorithm:

* A request on the path of another one ends a stage there: (A, 15) and (A, 35) give the stages 0-15 and 15-35.
* A request whose start is saved does not wait for a running stage, unless this running stage trains exactly what the request needs.
* A request that a running stage will pass becomes a save point of that stage, not a stage.

So no position is in two stages, and no stage contains a position that is trained and saved or is being trained.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hopyard_policies.stage_tree.plan import Available, SearchPlan, StageNode

Request = tuple[str, int]
"""A trial and the position up to which it must be trained."""

Rank = tuple[int, int, str]
"""The order in which requests are served: by position, then by trial."""

UnitTime = Callable[[str], float]
"""Takes a trial. Returns the estimated seconds (> 0) for which it trains one unit, a step of its position."""


@dataclass(frozen=True, slots=True)
class RunningTrial:
    """A run of a trial, as the stage tree sees it.

    Attributes:
        trial: The trial that runs.
        position: The position that the run has reached.
        until: The position up to which it will train; equal to `position` if it is parked.
        saving: Whether a snapshot at `position` is expected: it was requested there, or the engine or a person suspends the run.
    """

    trial: str
    position: int
    until: int
    saving: bool = False

    def passes(self, position: int) -> bool:
        """Return whether this run will reach a position, or is at it and will save or park there."""
        return self.position < position <= self.until or (
            self.position == position and (self.saving or self.position == self.until)
        )


@dataclass(eq=False, slots=True)
class TreePoint:
    """A state that some trial needs: the result of training up to a position.

    Attributes:
        node: The node of the search plan that contains it; the root for position 0.
        position: The position.
        asked: The rank (see `Rank`) of the first request that needs it.
        save: A job that has a snapshot of it; None: there is no snapshot, or the position is 0.
        run: The trial whose run will reach it; None: no run will.
        parent: The state from which it is trained; None: it exists or a run will reach it.
        children: The states that are trained from it.
        requests: Trials that are requested up to here.
        level: The longest training time in seconds from it to the end of any path below it.
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
        """Whether training can start from this state now: it is saved or is position 0, and no run has to reach it first."""
        return self.parent is None and self.run is None


@dataclass(frozen=True, slots=True)
class Stage:
    """A piece of training from the state `start` to the state `end`, done by one run without a stop.

    Attributes:
        start: The state from which the training starts.
        end: The state with which it ends; later than `start` on the same path.
    """

    start: TreePoint
    end: TreePoint

    @property
    def length(self) -> int:
        """The number of units that the stage trains."""
        return self.end.position - self.start.position


class StageTree:
    """The stages that must be trained to serve the requests, linked to a tree by the states at their ends.

    Args:
        plan: The search plan.
        requests: The trials that need training, with the positions up to which they need it.
        runs: Current runs by trial.
        available: Returns whether a snapshot can be loaded.
        unit_time: Returns the seconds of a unit of a trial.
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
        # Only the construction needs these. A tree that is reused must not keep the view of the up-call in which it was built.
        del self._available, self._saves, self._cuts, self._passing

    def roots(self) -> list[TreePoint]:
        """Return the states that exist, or that a run will reach, and from which at least one stage starts."""
        return [point for point in self._points.values() if point.parent is None and point.children]

    def points(self) -> Iterable[TreePoint]:
        """Return the states at the starts and ends of all stages, and those that exist or that runs will reach."""
        return self._points.values()

    def stages(self) -> list[Stage]:
        """Return all stages, in no particular order."""
        return [Stage(point.parent, point) for point in self._points.values() if point.parent is not None]

    def ready(self) -> list[Stage]:
        """Return the stages that can start now, longest critical path first."""
        found = [Stage(point, child) for point in self.roots() if point.ready for child in point.children]
        return sorted(found, key=lambda stage: -self.length_of(stage))

    def length_of(self, stage: Stage) -> float:
        """Return the critical path of a stage: the longest time in seconds from its start to the end of any path through it."""
        return self._seconds(stage.start.position, stage.end) + stage.end.level

    def length_behind(self, trial: str) -> float:
        """Return the critical path of a trial's run: the longest time in seconds to the end of any path that needs the run.

        The result is 0 if no request needs the run.
        """
        return self._ways.get(trial, 0.0)

    # ---------------------------------------------------------------------------------------------------------- building

    def _resolve(self, trial: str, position: int, asked: Rank) -> TreePoint:
        """Return the state of a trial at a position; if it is new, create it and the states on its path from which it is trained.

        Args:
            trial: The trial.
            position: The position.
            asked: The rank of the request that needs the state.
        """
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
        """Return the trial whose run will reach a position of a node, or is parked there; None: no run will.

        Of several, it is the run that arrives first.
        """
        runs = [run for run in self._passing.get(id(node), ()) if run.passes(position)]
        return max(runs, key=lambda run: run.position).trial if runs else None

    def _before(self, node: StageNode, position: int) -> int:
        """Return the last position before `position` in a node where a state exists, will exist or is requested; else its start."""
        cuts = self._cuts.get(id(node), [])
        index = bisect_left(cuts, position)
        found = [node.start, *cuts[max(index - 1, 0) : index]]
        found += [saved for saved in self._saved(node) if saved < position]
        # A state is available at a position where a run parks.
        found += [run.until for run in self._passing.get(id(node), ()) if run.until < position]
        return max(found)

    def _contract(self) -> None:
        """Merge two stages into one where they meet at a state that no request ends at and no other stage starts from."""
        for key, point in list(self._points.items()):
            if point.parent is not None and len(point.children) == 1 and not point.requests:
                (child,) = point.children
                child.parent = point.parent
                point.parent.children[point.parent.children.index(point)] = child
                del self._points[key]

    def _level(self, point: TreePoint) -> float:
        """Compute and store the levels of a state and all states trained from it; return that of the state.

        The computation is iterative, because a chain of stages may be long.
        """
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
