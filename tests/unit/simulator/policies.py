"""Policies for the tests of the simulator."""

from __future__ import annotations

from hopyard.policy import CONTINUE, PARK, SUSPEND, Cluster, Decision, IterationFinish, Policy


class Turns(Policy):
    """Suspends each job after each position, so that jobs take turns on the slots."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot in cluster.idle_slots():
            job = cluster.get_idle_job()
            if job is None or cluster.jobs[job].position >= cluster.jobs[job].max_position:
                break
            cluster.start_job(job, slot.id)
        if cluster.experiment.jobs_left:
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE if event.at_until else SUSPEND


class Raising(Turns):
    """Raises an error at the first boundary."""

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        raise KeyError("oops")


class Parking(Turns):
    """Starts one job, and parks it at its first boundary for ever."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        job = cluster.get_idle_job()
        if job is not None:
            cluster.start_job(job, cluster.idle_slots()[0].id, until=1)
        elif not cluster.jobs:
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return PARK


class Changing(Turns):
    """Creates jobs with configurations that it chooses itself."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        super().allocate_jobs(cluster)
        if len(cluster.jobs) < 3:
            cluster.create_job({"x": 99})
