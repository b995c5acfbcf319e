"""Policies that the experiments of these tests name as `module:Class`."""

from __future__ import annotations

from hopyard.policy import CONTINUE, TERMINATE, Cluster, Decision, IterationFinish, Policy, Rung, RungEntry


class Arrival(Policy):
    """Decides by the order in which reports arrive: the first value at a position is the minimum for all others."""

    margin = 0.0

    def __init__(self) -> None:
        self.bars: dict[int, float] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot in cluster.idle_slots():
            job = cluster.get_idle_job()
            if job is None:
                break
            cluster.start_job(job, slot.id)
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        value = event.report.metrics["accuracy"]
        bar = self.bars.setdefault(event.position, value)
        return TERMINATE if value < bar - self.margin else CONTINUE


class Halves(Arrival):
    """Continues a job beyond position 2 if it is in the better half of the jobs that have reported there."""

    def __init__(self) -> None:
        super().__init__()
        self.reported: dict[str, float] = {}
        self.promoted: list[str] = []

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        if event.position != 2:
            return CONTINUE
        self.reported[event.job] = event.report.metrics["accuracy"]
        if self._ordered().index(event.job) >= (len(self.reported) + 1) // 2:
            return TERMINATE
        self.promoted.append(event.job)
        return CONTINUE

    def rungs(self, cluster: Cluster) -> tuple[Rung, ...]:
        bottom = tuple(RungEntry(job, self.reported[job], job in self.promoted) for job in self._ordered())
        awaited = tuple(job.id for job in cluster.open_jobs() if job.id not in self.reported)
        top = cluster.experiment.max_position
        return (Rung(0, 0, 2, bottom, awaited, len(cluster.jobs)), Rung(0, 1, top, (), tuple(self.promoted)))

    def _ordered(self) -> list[str]:
        return sorted(self.reported, key=lambda job: -self.reported[job])
