"""Policies that tests simulate."""

from __future__ import annotations

from hopyard.policy import CONTINUE, SUSPEND, Cluster, Decision, IterationFinish, Policy


class Turns(Policy):
    """Every job leaves its machine after each position: suspends and resumes wherever they can be."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        for machine in cluster.idle_machines():
            job = cluster.get_idle_job()
            if job is None or cluster.jobs[job].position >= cluster.jobs[job].max_position:
                break
            cluster.start_job(job, machine.id)
        if cluster.experiment.jobs_left:
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE if event.at_until else SUSPEND
