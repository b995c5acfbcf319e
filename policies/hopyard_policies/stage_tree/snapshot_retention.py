"""Decides which snapshots of ended jobs are kept: those on the path of a trial that has not ended (an open trial)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hopyard.policy import Cluster
from hopyard_policies.stage_tree.plan import Nodes, SearchPlan


class SnapshotRetention:
    """Submits the command `keep_snapshots`, which names the snapshots of an ended job that must not be deleted.

    It is submitted when a job ends, and again when the set of needed snapshots changes. A snapshot is needed if it is on the path of
    a trial that has not ended. No command is submitted if trials are forked, because forks use
    snapshots of ended jobs, or if trials share no training.

    Args:
        active: Whether commands are submitted.
    """

    def __init__(self, active: bool) -> None:
        self._active = active
        self._open: Mapping[int, Nodes] = {}
        self._ended: set[str] = set()
        self._said: dict[str, set[int]] = {}

    def ended(self, job: str) -> None:
        """Record that a job has ended. The next `say` submits its needed snapshots."""
        self._ended.add(job)

    def say(
        self,
        cluster: Cluster,
        plan: SearchPlan,
        passed: Mapping[int, Nodes],
        saved: Callable[[Cluster, str], Iterable[int]],
    ) -> None:
        """Submit the command `keep_snapshots` for each ended job whose set of needed snapshots has changed.

        Args:
            cluster: Receives the commands.
            plan: The search plan.
            passed: Nodes on the paths of trials that have not ended, by number of the branch. If a branch has the same object as in
                the last call, its nodes are unchanged.
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
                self._said.pop(job, None)  # The job runs again, so the earlier command has no effect any more.
            elif job in plan:
                self._look(cluster, plan, job, saved(cluster, job))

    def _look(self, cluster: Cluster, plan: SearchPlan, job: str, positions: Iterable[int]) -> None:
        limit = plan[job].limit
        there = {position for position in positions if 0 < position <= limit}
        passed = self._open.get(plan.branch(job), {})
        wanted = {position for position in there if id(plan.node(job, position)) in passed}
        # The engine keeps the last snapshot of a completed job without a command.
        if wanted != self._said.get(job, there - {limit}):
            self._said[job] = wanted
            cluster.keep_snapshots(job, wanted)
