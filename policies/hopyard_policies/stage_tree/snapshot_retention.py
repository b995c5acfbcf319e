"""Which snapshots of jobs that have ended something may still start from: those on the way of a trial that has not ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hopyard.policy import Cluster
from hopyard_policies.stage_tree.plan import Nodes, SearchPlan


class Keeping:
    """Says it of a job when it ends, and again whenever that has changed.

    Copies are made of what has ended, and where nothing is shared nobody else starts from it: then nothing is said.

    Args:
        active: Whether anything is.
    """

    def __init__(self, active: bool) -> None:
        self._active = active
        self._open: Mapping[int, Nodes] = {}
        self._ended: set[str] = set()
        self._said: dict[str, set[int]] = {}

    def ended(self, job: str) -> None:
        """A job has ended, or what there is of its snapshots has changed."""
        self._ended.add(job)

    def say(
        self,
        cluster: Cluster,
        plan: SearchPlan,
        passed: Mapping[int, Nodes],
        saved: Callable[[Cluster, str], Iterable[int]],
    ) -> None:
        """Says what is new.

        Args:
            cluster: Takes the commands.
            plan: Where snapshots lie in the tree.
            passed: The nodes through which trials pass that have not ended, by branch; what is the same object has not changed.
            saved: Positions of a job's own snapshots.
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
                self._said.pop(job, None)  # It goes on: nothing holds any more that was said of it.
            elif job in plan:
                self._look(cluster, plan, job, saved(cluster, job))

    def _look(self, cluster: Cluster, plan: SearchPlan, job: str, positions: Iterable[int]) -> None:
        limit = plan[job].limit
        there = {position for position in positions if 0 < position <= limit}
        passed = self._open.get(plan.branch(job), {})
        wanted = {position for position in there if id(plan.node(job, position)) in passed}
        # A job that was trained to its end retains the end by itself.
        if wanted != self._said.get(job, there - {limit}):
            self._said[job] = wanted
            cluster.keep_snapshots(job, wanted)
