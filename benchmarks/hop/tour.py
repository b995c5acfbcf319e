"""A policy that moves each job to another node after every unit."""

from __future__ import annotations

from hopyard.policy import Cluster, Policy


class Tour(Policy):
    """Starts an idle job on a node other than its last one; waits if no such node has an idle slot."""

    ship_every = 0

    def __init__(self, *, nodes: int = 2) -> None:
        self._nodes = nodes
        self._last: dict[str, str] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        if len({slot.node for slot in cluster.slots.values()}) < self._nodes:
            return
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()
        for job in cluster.idle_jobs():
            for slot in cluster.idle_slots():
                if slot.node != self._last.get(job.id):
                    self._last[job.id] = slot.node
                    unit = job.position + 1
                    cluster.start_job(job.id, slot.id, until=unit, allowed=unit, preemptible=False)
                    break

    def demand(self, cluster: Cluster) -> int:
        return self._nodes
