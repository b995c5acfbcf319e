"""Policies that train each job on several slots at once."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.policy import CONTINUE, Cluster, Decision, IterationFinish, Policy, SlotView


class Gangs(Policy):
    """Trains each job on `size` slots, in stretches of `stretch` units (0: up to its end).

    Each stretch of a job has another first slot than the stretch before, with ranks on as many nodes as possible.
    """

    def __init__(self, size: int = 2, stretch: int = 0) -> None:
        self._size = size
        self._stretch = stretch
        self._first: dict[str, str] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        experiment = cluster.experiment
        room = len(cluster.idle_slots()) // self._size
        for _ in range(min(room - len(cluster.idle_jobs()), experiment.jobs_left)):
            cluster.create_job()
        for job in cluster.idle_jobs():
            chosen = self._choose(cluster.idle_slots(), self._first.get(job.id, ""))
            if len(chosen) < self._size:
                return
            self._first[job.id] = chosen[0].id
            end = experiment.max_position
            until = min(job.position + self._stretch, end) if self._stretch else end
            cluster.start_job(job.id, [m.id for m in chosen], until=until, allowed=until)

    def _choose(self, idle: Sequence[SlotView], last: str) -> list[SlotView]:
        """Return slots from each node in turn; if possible, the first one is not the job's first slot of its last stretch."""
        turns: list[tuple[int, bool, str]] = []
        slots = {slot.id: slot for slot in idle}
        for node in sorted({slot.node for slot in idle}):
            of_node = sorted((m.id for m in idle if m.node == node), key=lambda name: (name == last, name))
            turns += [(turn, name == last, name) for turn, name in enumerate(of_node)]
        return [slots[name] for _, _, name in sorted(turns)[: self._size]]

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE

    def demand(self, cluster: Cluster) -> int:
        return self._size * (len(cluster.open_jobs()) + cluster.experiment.jobs_left)

    def gang(self, cluster: Cluster) -> int:
        return self._size
