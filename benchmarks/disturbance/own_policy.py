"""A policy that is part of an experiment's code, so it runs in a process of its own: it ends the worse half at each rung.

It is copied as `own.py`. Its decisions depend on the order of arrival.
"""

from __future__ import annotations

from hopyard.policy import CONTINUE, TERMINATE, Cluster, Decision, IterationFinish, Policy


class Halver(Policy):
    """Ends a job that is at a multiple of `every` worse than half of the jobs that were there before it."""

    def __init__(self, every: int = 20) -> None:
        self._every = every
        self._seen: dict[int, list[float]] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        slots = list(cluster.idle_slots())
        for job, slot in zip(list(cluster.idle_jobs()), slots, strict=False):
            cluster.start_job(job.id, slot.id, allowed=self._rung(job.position))
        for _ in range(min(cluster.experiment.jobs_left, len(slots))):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        if event.at_until or event.position % self._every:
            return CONTINUE
        terms = cluster.experiment
        value = event.report.metrics[terms.metric]
        seen = self._seen.setdefault(event.position, [])
        better = sum(terms.better(other, value) for other in seen)
        seen.append(value)
        if 2 * better > len(seen):
            return TERMINATE
        return Decision.proceed(self._rung(event.position))

    def _rung(self, position: int) -> int:
        return (position // self._every + 1) * self._every
