"""Policies that make the cluster do what a test wants to see."""

from __future__ import annotations

from hopyard.policy import CONTINUE, Cluster, Decision, IterationFinish, Policy


class Mover(Policy):
    """Trains each job in stretches, never two of them on the same node: every stretch begins with a snapshot from elsewhere."""

    def __init__(self, stretch: int = 3) -> None:
        self._stretch = stretch
        self._last_node: dict[str, str] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        experiment = cluster.experiment
        for _ in range(experiment.jobs_left):
            cluster.create_job()
        for job in cluster.idle_jobs():
            other = [m for m in cluster.idle_machines() if m.node != self._last_node.get(job.id)]
            if other:
                self._last_node[job.id] = other[0].node
                until = min(job.position + self._stretch, experiment.max_position)
                cluster.start_job(job.id, other[0].id, until=until, allowed=until)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE
