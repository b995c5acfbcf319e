"""Policies that experiments of these tests name as `module:Class`."""

from __future__ import annotations

from hopyard.policy import CONTINUE, TERMINATE, Cluster, Decision, IterationFinish, Policy


class Arrival(Policy):
    """Decides by the order in which reports arrive: who comes first to a position sets the bar for the others."""

    margin = 0.0

    def __init__(self) -> None:
        self.bars: dict[int, float] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        for machine in cluster.idle_machines():
            job = cluster.get_idle_job()
            if job is None:
                break
            cluster.start_job(job, machine.id)
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        value = event.report.metrics["accuracy"]
        bar = self.bars.setdefault(event.position, value)
        return TERMINATE if value < bar - self.margin else CONTINUE
