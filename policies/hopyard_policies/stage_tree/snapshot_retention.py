"""Decides which snapshots of ended jobs are kept: those on the path of a trial that has not ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hopyard.policy import Cluster
from hopyard_policies.stage_tree.plan import Nodes, SearchPlan


class Keeping:
    """Submits `keep_snapshots` for a job when it ends, and again when the set of needed snapshots changes.

    It is inactive if trials are forked, because forks use snapshots of ended jobs, and if nothing is shared.

    Args:
        active: Whether commands are submitted.
    """

    def __init__(self, active: bool) -> None:
        self._active = active
        self._open: Mapping[int, Nodes] = {}
        self._ended: set[str] = set()
        self._said: dict[str, set[int]] = {}

    def ended(self, job: str) -> None:
        """Note that a job has ended, or that its snapshots have changed."""
        self._ended.add(job)

    def say(
        self,
        cluster: Cluster,
        plan: SearchPlan,
        passed: Mapping[int, Nodes],
        saved: Callable[[Cluster, str], Iterable[int]],
    ) -> None:
        """Submit `keep_snapshots` where the set has changed.

        Args:
            cluster: Receives the commands.
            plan: The search plan.
            passed: Nodes on the paths of open trials, by branch; the same object means that they are unchanged.
            saved: Returns the positions of a job's own snapshots.
        """
        if not self._active:
            return
        changed = []
        for branch in self._open.keys() | passed.keys():
            before, now = self._open.get(branch, {}), passed.get(branch, {})
            if before is not now:
                changed += [before[key] for key in before.keys() - now.keys()]
                changed += [now[key] for key in now.keys() - before.keys()]
        concerned = self._ended.union(*(owners for node in changed for owners in node.saves.values()))
        self._open, self._ended = passed, set()
        jobs = cluster.jobs
        for job in sorted((name for name in concerned if name in jobs), key=lambda name: jobs[name].ordinal):
            if not jobs[job].state.ended:
                self._said.pop(job, None)  # It continues, so the earlier command no longer holds.
            elif job in plan:
                self._look(cluster, plan, job, saved(cluster, job))

    def _look(self, cluster: Cluster, plan: SearchPlan, job: str, positions: Iterable[int]) -> None:
        limit = plan[job].limit
        there = {position for position in positions if 0 < position <= limit}
        passed = self._open.get(plan.branch(job), {})
        wanted = {position for position in there if id(plan.node(job, position)) in passed}
        # A completed job keeps its last snapshot anyway.
        if wanted != self._said.get(job, there - {limit}):
            self._said[job] = wanted
            cluster.keep_snapshots(job, wanted)
