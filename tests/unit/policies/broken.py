"""Policies with one defect each and a conformance suite for each, to test that the suite rejects them."""

from __future__ import annotations

import random
from time import time

from hopyard.policy import (
    CONTINUE,
    PARK,
    TERMINATE,
    ApplicationStat,
    Cluster,
    Decision,
    GeneratorExhausted,
    IterationFinish,
    JobCreated,
    Policy,
)
from hopyard.policy.conformance import PolicyConformance


class Greedy(Policy):
    """A correct policy, the base class of the defective ones."""

    def allocate_jobs(self, cluster: Cluster) -> None:
        for slot, job in zip(cluster.idle_slots(), self.order(cluster), strict=False):
            cluster.start_job(job, slot.id, allowed=cluster.experiment.max_position)
        for _ in range(min(cluster.experiment.jobs_left, len(cluster.idle_slots()))):
            cluster.create_job()

    def order(self, cluster: Cluster) -> list[str]:
        return [job.id for job in cluster.idle_jobs()]

    def demand(self, cluster: Cluster) -> int | None:
        return sum(not job.state.ended for job in cluster.jobs.values()) + cluster.experiment.jobs_left


class GlobalChance(Greedy):
    def order(self, cluster: Cluster) -> list[str]:
        jobs = super().order(cluster)
        random.shuffle(jobs)
        return jobs


class ReadsTheClock(Greedy):
    def __init__(self) -> None:
        self.seen = 0.0

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        self.seen = time()


class SetOrder(Greedy):
    def order(self, cluster: Cluster) -> list[str]:
        return list({job.id for job in cluster.idle_jobs()})


class SharedMemory(Greedy):
    """Stores its state in a class attribute, so that a new instance starts with the state of earlier instances."""

    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.reverse = self.made % 2 == 0

    def order(self, cluster: Cluster) -> list[str]:
        jobs = super().order(cluster)
        return jobs[::-1] if self.reverse else jobs


class SharedDict(Greedy):
    """Terminates a job whose second report is not near the best one; keeps in a class attribute which jobs were judged."""

    judged: dict[str, bool] = {}  # noqa: RUF012  # the defect

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        ratings, best = cluster.ratings(event.job), cluster.incumbent
        if event.position >= 2 and best is not None and not self.judged.get(event.job):
            self.judged[event.job] = True
            if max(ratings.values()) < 0.9 * cluster.experiment.rated(best.value):
                cluster.terminate_job(event.job)
        return CONTINUE


class BusySlot(Greedy):
    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        cluster.start_job(created.job, next(iter(cluster.slots)))


class StartsTwice(Greedy):
    def allocate_jobs(self, cluster: Cluster) -> None:
        jobs = cluster.idle_jobs()
        for slot in cluster.idle_slots():
            if jobs:
                cluster.start_job(jobs[0].id, slot.id)
        super().allocate_jobs(cluster)


class ForgetsLostJobs(Greedy):
    """Starts jobs from its own queue and adds a job only at its creation, so that it never restarts a lost job."""

    def __init__(self) -> None:
        self.queue: list[str] = []

    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        self.queue.append(created.job)

    def order(self, cluster: Cluster) -> list[str]:
        count = len(cluster.idle_slots())
        now, self.queue = self.queue[:count], self.queue[count:]
        return now


class LeaksASlot(Greedy):
    def __init__(self) -> None:
        self.kept: str | None = None

    def allocate_jobs(self, cluster: Cluster) -> None:
        if self.kept is None and len(cluster.idle_slots()) > 1:
            self.kept = cluster.reserve_idle_machine()
        super().allocate_jobs(cluster)


class ParksAnywhere(Greedy):
    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return CONTINUE if event.at_until else PARK


class CrashesOnNaN(Greedy):
    def __init__(self) -> None:
        self.histogram: dict[int, int] = {}

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        bucket = int(stat.report.metrics[cluster.experiment.metric] * 10)
        self.histogram[bucket] = self.histogram.get(bucket, 0) + 1


class IgnoresExhaustion(Greedy):
    def on_generator_exhausted(self, cluster: Cluster, exhausted: GeneratorExhausted) -> None:
        cluster.create_job()


class ParksForEver(Greedy):
    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return PARK if event.at_until else CONTINUE


class MaximisesAlways(Greedy):
    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        value = event.report.metrics[cluster.experiment.metric]
        if event.position == 2 and not value > 0.3:
            cluster.terminate_job(event.job)
        return CONTINUE


class ComparesRawValues(Greedy):
    """Ends a job whose reward is not within a factor of the best one, whatever the range of rewards."""

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        value, best = event.report.metrics[cluster.experiment.metric], cluster.incumbent
        if event.position == 2 and best is not None and not abs(best.value - value) < 0.5 * abs(best.value):
            cluster.terminate_job(event.job)
        return CONTINUE


class ChangesHyperparameters(Greedy):
    def on_job_created(self, cluster: Cluster, created: JobCreated) -> None:
        hyperparameters = cluster.jobs[created.job].hyperparameters
        assert isinstance(hyperparameters, dict)
        hyperparameters["seen"] = True


class JudgesTooLate(Greedy):
    """Terminates jobs by a rule that no job of the suite's schedules lives long enough to meet."""

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        return TERMINATE if event.position > 100 else CONTINUE


class WantsForEver(Greedy):
    def demand(self, cluster: Cluster) -> int:
        return len(cluster.jobs) + 1


class GreedySuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return Greedy()


class GlobalChanceSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return GlobalChance()


class ReadsTheClockSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return ReadsTheClock()


class SetOrderSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return SetOrder()


class SharedMemorySuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return SharedMemory()


class SharedDictSuite(PolicyConformance):
    symmetric = False

    def make_policy(self) -> Policy:
        return SharedDict()


class BusySlotSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return BusySlot()


class StartsTwiceSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return StartsTwice()


class ForgetsLostJobsSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return ForgetsLostJobs()


class LeaksASlotSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return LeaksASlot()


class ParksAnywhereSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return ParksAnywhere()


class CrashesOnNaNSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return CrashesOnNaN()


class IgnoresExhaustionSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return IgnoresExhaustion()


class ParksForEverSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return ParksForEver()


class MaximisesAlwaysSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return MaximisesAlways()


class ComparesRawValuesSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return ComparesRawValues()


class ChangesHyperparametersSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return ChangesHyperparameters()


class JudgesTooLateSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return JudgesTooLate()


class WantsForEverSuite(PolicyConformance):
    def make_policy(self) -> Policy:
        return WantsForEver()
