"""Policies that make a cluster do what a test must observe."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.policy import (
    CONTINUE,
    SUSPEND,
    TERMINATE,
    AnswerReady,
    Cluster,
    Decision,
    IterationFinish,
    JobState,
    Policy,
)


class Mover(Policy):
    """Trains each job in stretches on changing nodes, so that each stretch begins with a snapshot from another node."""

    def __init__(self, stretch: int = 3) -> None:
        self._stretch = stretch
        self._last_node: dict[str, str] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        experiment = cluster.experiment
        for _ in range(experiment.jobs_left):
            cluster.create_job()
        for job in cluster.idle_jobs():
            other = [m for m in cluster.idle_slots() if m.node != self._last_node.get(job.id)]
            if other:
                self._last_node[job.id] = other[0].node
                until = min(job.position + self._stretch, experiment.max_position)
                cluster.start_job(job.id, other[0].id, until=until, allowed=until)

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE


class Halving(Policy):
    """Asynchronous halving: a job continues beyond a rung if it is in the better half of the values reported there so far.

    The decisions depend on the order of arrival. The other jobs are suspended, and are promoted once they belong to the better half
    because enough worse values were reported; every third of them, in the order of their reports, is terminated.
    """

    def __init__(self, rungs: Sequence[int] = (2, 4, 8)) -> None:
        self._rungs = tuple(rungs)
        self._reported: dict[int, dict[str, float]] = {rung: {} for rung in rungs}
        self._target: dict[str, int] = {}
        self._amended: dict[str, str] = {}
        self._left = 0

    def allocate_jobs(self, cluster: Cluster) -> None:
        slots = list(cluster.idle_slots())
        while slots and (job := self._next(cluster)) is not None:
            cluster.start_job(job, slots.pop(0).id, until=self._target[job], allowed=self._target[job])
        for _ in range(min(cluster.experiment.jobs_left, len(slots) - cluster.count(JobState.CREATING))):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        here = event.position
        if not event.at_until or here >= cluster.experiment.max_position:
            return CONTINUE
        self._reported[here].setdefault(event.job, event.report.metrics[cluster.experiment.metric])
        if self._target[event.job] > here or self._promotable(here, event.job):
            self._target[event.job] = self._after(cluster, here)
            self._amended[cluster.amend_run(event.job, until=self._target[event.job])] = event.job
            return Decision.proceed(self._target[event.job])
        self._left += 1
        return TERMINATE if self._left % 3 == 0 else SUSPEND

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        job = self._amended.pop(answer.ticket)
        if not answer.result["accepted"] and cluster.jobs[job].parked:
            cluster.suspend_job(job)

    def _next(self, cluster: Cluster) -> str | None:
        """Return the idle job with the highest position among those on their way to a rung or promotable now; None: there is none."""
        for job in sorted(cluster.idle_jobs(), key=lambda job: (-self._target.get(job.id, 0), job.ordinal)):
            target = self._target.setdefault(job.id, self._rungs[0])
            if job.high_water >= target and self._promotable(target, job.id):
                target = self._target[job.id] = self._after(cluster, target)
            if job.high_water < target:
                return job.id
        return None

    def _promotable(self, rung: int, job: str) -> bool:
        values = self._reported[rung]
        better = sum(value > values[job] for value in values.values())
        return job in values and better < len(values) / 2

    def _after(self, cluster: Cluster, rung: int) -> int:
        return next((other for other in self._rungs if other > rung), cluster.experiment.max_position)


class Interrupter(Policy):
    """Suspends each job when it first reaches one of the positions `at`, and starts it again at once."""

    def __init__(self, at: Sequence[int] = (2, 4)) -> None:
        self._at = frozenset(at)

    def allocate_jobs(self, cluster: Cluster) -> None:
        slots = list(cluster.idle_slots())
        for job, slot in zip(cluster.idle_jobs(), slots, strict=False):
            cluster.start_job(job.id, slot.id, until=job.max_position)
        for _ in range(min(cluster.experiment.jobs_left, len(slots) - cluster.count(JobState.CREATING))):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return SUSPEND if event.report.position in self._at and not event.repeated else CONTINUE
