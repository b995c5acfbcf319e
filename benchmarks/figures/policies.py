"""Policies that make the cluster do what a figure measures."""

from __future__ import annotations

from hopyard.policy import CONTINUE, SUSPEND, Cluster, Decision, IterationFinish, Policy


class EachIteration(Policy):
    """Starts what is idle, and decides after every iteration: go on; with `suspend`: save and leave the machine."""

    def __init__(self, suspend: bool = False) -> None:
        self._decision = SUSPEND if suspend else CONTINUE

    def allocate_jobs(self, cluster: Cluster) -> None:
        for machine in cluster.idle_machines():
            job = cluster.get_idle_job()
            if job is None:
                break
            cluster.start_job(job, machine.id)
        for _ in range(min(cluster.experiment.jobs_left, len(cluster.machines))):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE if event.at_until else self._decision
