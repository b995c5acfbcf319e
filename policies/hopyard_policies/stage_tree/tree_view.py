"""The stage tree for display (`hopyard tree`), including finished stages."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hopyard.policy import Cluster, CurvePoint, StageState, StageView
from hopyard_policies.stage_tree.plan import StageNode
from hopyard_policies.stage_tree.state import PolicyState, RequestedRun


def stages(books: PolicyState, cluster: Cluster) -> tuple[StageView, ...]:
    """Return the whole stage tree for display, parents before their children, from the policy's state `books`; change no state."""
    return tuple(_Showing(books, cluster).found)


class _Showing:
    def __init__(self, books: PolicyState, cluster: Cluster) -> None:
        self._books, self._cluster, self._plan = books, cluster, books.plan
        self._curves: dict[str, Sequence[CurvePoint]] = {}
        self._trials: dict[int, list[str]] = {}
        self._wanted: dict[int, list[int]] = {}
        self._runs: dict[int, list[tuple[RequestedRun, int]]] = {}
        self._reached: dict[int, tuple[int, str]] = {}
        for job in cluster.jobs:
            if job in self._plan:
                for node in self._plan.leaf(job).path():
                    self._trials.setdefault(id(node), []).append(job)
        for state, virtual_run in books.virtual_runs():
            for node in self._plan.leaf(state.id).path():
                self._wanted.setdefault(id(node), []).append(virtual_run.until)
        for run in books.runs.values():
            self._follow(run)
        self._known_trials = {state.id: state for _, state in books.trials()}
        self._unit = None if books.times.known else self._first_unit()
        self.found: list[StageView] = []
        self._walk()

    def _follow(self, run: RequestedRun) -> None:
        """Record the position of a run in the nodes of its trial; the run may have reported since the last up-call."""
        job = self._cluster.jobs[run.trial]
        at = job.position if job.state.live else run.start
        for node in self._plan.leaf(run.trial).path():
            reached = min(job.high_water, node.end)
            if reached > max(node.reached, self._reached.get(id(node), (0, ""))[0]):
                self._reached[id(node)] = reached, run.trial
            if job.state.live and at < node.end and run.until > node.start:
                self._runs.setdefault(id(node), []).append((run, at))

    def _walk(self) -> None:
        stack: list[tuple[StageNode, int | None]] = [(node, None) for node in reversed(self._plan.root.children)]
        while stack:
            node, parent = stack.pop()
            for start, end in pairwise(self._cuts(node)):
                self.found.append(self._stage(node, start, end, parent))
                parent = len(self.found)
            stack += [(child, parent) for child in reversed(node.children)]

    def _known(self, node: StageNode) -> tuple[int, str]:
        return self._reached.get(id(node), (node.reached, node.by))

    def _cuts(self, node: StageNode) -> list[int]:
        """Return the positions at which a node is cut into stages for display, including its start and end.

        Between two consecutive positions, all training has the same state: trained, running, waiting or unwanted.
        """
        inside = {self._known(node)[0], *self._wanted.get(id(node), ())}
        for run, at in self._runs.get(id(node), ()):
            inside |= {at, run.until}
        return [node.start, *sorted(p for p in inside if node.start < p < node.end), node.end]

    def _stage(self, node: StageNode, start: int, end: int, parent: int | None) -> StageView:
        trials = self._trials.get(id(node), [])
        reached, by = self._known(node)
        run = next(((run, at) for run, at in self._runs.get(id(node), ()) if at <= start < run.until), None)
        known = self._known_trials
        reusing: tuple[str, ...] = ()
        if run is not None:
            state, by = StageState.RUNNING, run[0].trial
        elif end <= reached:
            state = StageState.DONE
            reusing = tuple(
                job
                for job in trials
                if job in known and job != by and known[job].position >= end and not self._trained(job, start, end)
            )
        else:
            wanted = any(until >= end for until in self._wanted.get(id(node), ()))
            state, by = StageState.WAITING if wanted else StageState.UNWANTED, ""
        return StageView(
            number=len(self.found) + 1,
            parent=parent,
            start=start,
            end=end,
            state=state,
            trials=tuple(trials),
            ends=tuple(job for job in trials if self._plan[job].limit == end),
            reused=len(reusing),
            by=by,
            slot=run[0].slot if run is not None else self._last_slot(by),
            seconds=self._seconds(state, by or node.member, start, end),
            saved=bool(self._owners(node, end)),
            reusing=reusing,
        )

    def _trained(self, trial: str, start: int, end: int) -> bool:
        """Return whether a trial's own run trained any part of a stage, given by its start and end positions.

        This happens also where another job had trained the stage, if no snapshot was available.
        """
        spans = list(self._books.trained.get(trial, ()))
        if trial in self._books.runs:
            spans.append((self._books.runs[trial].start, self._cluster.jobs[trial].position))
        return any(first < end and start < last for first, last in spans)

    def _last_slot(self, trial: str) -> str:
        run = self._books.runs.get(trial)
        return run.slot if run is not None else self._books.slots.get(trial, "")

    def _owners(self, node: StageNode, position: int) -> list[str]:
        return [job for job in node.saves.get(position, ()) if position in self._cluster.snapshots(job)]

    def _seconds(self, state: StageState, trial: str, start: int, end: int) -> float | None:
        """Return the measured seconds of a finished stage, or the expected seconds of one that is not finished.

        None: the stage is not finished, and no unit of training was measured yet.

        Args:
            state: The state of the stage.
            trial: The trial whose measured times are used.
            start: The start position of the stage (exclusive).
            end: The end position of the stage (inclusive).
        """
        if state is not StageState.DONE:
            unit = self._books.times.unit(trial) if self._books.times.known else self._unit
            return (end - start) * unit if unit is not None else None
        return sum(point.seconds for point in self._curve(trial) if start < point.position <= end)

    def _first_unit(self) -> float | None:
        """Return the mean seconds of a unit over the reports of all current runs; None: none of them has reported.

        It is used only while the cost model has no measured time of a unit.
        """
        curves = [[p for p in self._curve(run.trial) if p.position > run.start] for run in self._books.runs.values()]
        seconds = sum(point.seconds for curve in curves for point in curve)
        units = sum(
            curve[-1].position - run.start
            for curve, run in zip(curves, self._books.runs.values(), strict=True)
            if curve
        )
        return seconds / units if units else None

    def _curve(self, trial: str) -> Sequence[CurvePoint]:
        if trial not in self._curves:
            self._curves[trial] = self._cluster.curve(trial)
        return self._curves[trial]
