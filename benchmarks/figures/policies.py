"""Policies that make the cluster do what a figure measures."""

from __future__ import annotations

from hopyard.policy import CONTINUE, SUSPEND, Cluster, Decision, IterationFinish, Policy


class EachIteration(Policy):
    """Starts idle jobs, and decides after every iteration: CONTINUE, or with `suspend` SUSPEND."""

    def __init__(self, suspend: bool = False) -> None:
        self._decision = SUSPEND if suspend else CONTINUE

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot in cluster.idle_slots():
            job = cluster.get_idle_job()
            if job is None:
                break
            cluster.start_job(job, slot.id)
        for _ in range(min(cluster.experiment.jobs_left, len(cluster.slots))):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE if event.at_until else self._decision


class AsksInTurns(EachIteration):
    """Requests predictions in alternate blocks of iterations: after each iteration of an odd block, and never in even blocks.

    Training waits neither for decisions nor for predictions.

    Args:
        block: Number of iterations in a block, at least 1.
        target: The value of the metric whose probability is predicted.
    """

    def __init__(self, block: int, target: float) -> None:
        super().__init__()
        self._block, self._target = block, target

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot in cluster.idle_slots():
            job = cluster.get_idle_job()
            if job is None:
                break
            cluster.start_job(job, slot.id, allowed=cluster.experiment.max_position)
        for _ in range(min(cluster.experiment.jobs_left, len(cluster.slots))):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        if event.position // self._block % 2 and not event.at_until:
            cluster.predict(event.job, target=self._target)
        return CONTINUE
