"""A policy that trains each job on one partition after another, and then evaluates it on all evaluation partitions."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard.policy import (
    CONTINUE,
    Cluster,
    Decision,
    IterationFinish,
    JobView,
    Partition,
    Policy,
    RunMode,
    SlotView,
)


class Visitor(Policy):
    """Trains with one position per visit to a partition."""

    needs_data = True

    def __init__(self) -> None:
        self._evaluated: dict[str, set[str]] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()
        assert cluster.data is not None
        started: set[str] = set()
        for slot in cluster.idle_slots():
            for job in cluster.idle_jobs():
                if job.id not in started and self._start(cluster, slot, job):
                    started.add(job.id)
                    break

    def _start(self, cluster: Cluster, slot: SlotView, job: JobView) -> bool:
        data = cluster.data
        assert data is not None
        done = self._evaluated.setdefault(job.id, set())
        if job.position and job.position % len(data.train) == 0:
            left = [one for one in data.evaluate if one.name not in done]
            if left:
                return self._on(cluster, slot, job, left, RunMode.EVALUATE)
        return self._on(cluster, slot, job, [data.train[job.position % len(data.train)]], RunMode.TRAIN)

    def _on(self, cluster: Cluster, slot: SlotView, job: JobView, parts: Sequence[Partition], mode: RunMode) -> bool:
        here = next((part.name for part in parts if slot.node in part.nodes), None)
        if here is None:
            return False
        if mode is RunMode.EVALUATE:
            self._evaluated[job.id].add(here)
            cluster.start_job(job.id, slot.id, inputs={slot.id: here}, mode=mode)
        else:
            self._evaluated[job.id].clear()
            until = job.position + 1
            cluster.start_job(job.id, slot.id, until=until, allowed=until, inputs={slot.id: here}, preemptible=False)
        return True

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE
