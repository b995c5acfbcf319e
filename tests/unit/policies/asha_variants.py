"""A short policy that implements Algorithm 2 of the ASHA paper, and variants that deviate from it in one respect each."""

from __future__ import annotations

import math

from hopyard.policy import (
    CONTINUE,
    TERMINATE,
    AnswerReady,
    Cluster,
    Decision,
    IterationFinish,
    JobState,
    Policy,
    RunEnd,
    RunEndReason,
)

ETA = 2
RUNGS = (1, 2, 4, 8)


class AsMeant(Policy):
    """Implements Algorithm 2: it scans rungs from the top, promotes the best unpromoted job, or else starts a new one.

    A job is promotable if it is among the best floor(|rung| / eta) of its rung; of equal values the earlier report is better.
    """

    def __init__(self) -> None:
        self.values: list[dict[str, float]] = [{} for _ in RUNGS]
        self.promoted: list[set[str]] = [set() for _ in RUNGS]
        self.heading: dict[str, int] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        slots = [slot.id for slot in cluster.idle_slots()]
        waiting = [job.id for job in cluster.idle_jobs()]
        lost = [job for job in waiting if job in self.heading and job not in self.values[self.heading[job]]]
        fresh = [job for job in waiting if job not in self.heading]
        while slots:
            job = lost.pop(0) if lost else self.pick(waiting)
            if job is None and fresh:
                job = fresh.pop(0)
                self.heading[job] = 0
            if job is None:
                break
            cluster.start_job(job, slots.pop(0), until=RUNGS[self.heading[job]])
        for _ in range(min(cluster.experiment.jobs_left, len(slots) - cluster.count(JobState.CREATING))):
            cluster.create_job()

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        rung = self.heading[event.job]
        if event.position != RUNGS[rung]:
            return CONTINUE
        self.values[rung].setdefault(event.job, event.report.metrics[cluster.experiment.metric])
        idle = [job.id for job in cluster.idle_jobs()]
        return self.at_rung(cluster, event, idle)

    def at_rung(self, cluster: Cluster, event: IterationFinish, idle: list[str]) -> Decision:
        found = self.find([*idle, event.job])
        if found is not None and found[0] == event.job:
            return self.go_on(cluster, event)
        waiting = [job for job in idle if job in self.heading and job not in self.values[self.heading[job]]]
        if len(waiting) <= cluster.count(JobState.SUSPENDING):
            self.pick(idle)  # The promoted job waits for this slot.
        return CONTINUE

    def go_on(self, cluster: Cluster, event: IterationFinish) -> Decision:
        rung = self.heading[event.job]
        if rung + 1 == len(RUNGS):
            return CONTINUE
        self.promoted[rung].add(event.job)
        self.heading[event.job] = rung + 1
        cluster.amend_run(event.job, until=RUNGS[rung + 1])
        return Decision.proceed(RUNGS[rung + 1])

    def on_answer(self, cluster: Cluster, answer: AnswerReady) -> None:
        assert answer.result["accepted"]

    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        if run.reason is RunEndReason.UNTIL and run.position == RUNGS[-1]:
            curve = {point.position: point.metrics for point in cluster.curve(run.job)}
            self.values[-1][run.job] = curve[run.position][cluster.experiment.metric]

    def pick(self, idle: list[str]) -> str | None:
        """Promote a job and return it, or None if no job is promotable."""
        found = self.find(idle)
        if found is None:
            return None
        job, rung = found
        self.promoted[rung].add(job)
        self.heading[job] = rung + 1
        return job

    def find(self, available: list[str]) -> tuple[str, int] | None:
        for rung in self.scan():
            for job in self.best(rung):
                if job not in self.promoted[rung] and job in available:
                    return job, rung
        return None

    def scan(self) -> list[int]:
        return list(range(len(RUNGS) - 2, -1, -1))

    def best(self, rung: int) -> list[str]:
        values = self.values[rung]
        return sorted(values, key=lambda job: -values[job] if math.isfinite(values[job]) else math.inf)[
            : len(values) // ETA
        ]


class BottomUp(AsMeant):
    """Scans the rungs from the bottom instead of the top."""

    def scan(self) -> list[int]:
        return list(range(len(RUNGS) - 1))


class LatestOnly(AsMeant):
    """Promotes only a job that has just reported, never one that waits at its rung."""

    def pick(self, idle: list[str]) -> str | None:
        return None


class Stopping(AsMeant):
    """Continues a job that is among the best floor(|rung| / eta) when it reports, or first at its rung; terminates any other."""

    def at_rung(self, cluster: Cluster, event: IterationFinish, idle: list[str]) -> Decision:
        rung = self.heading[event.job]
        if event.job in self.best(rung) or len(self.values[rung]) < ETA:
            return self.go_on(cluster, event)
        return TERMINATE


class LaterTies(AsMeant):
    """Prefers the later report among equal values."""

    def best(self, rung: int) -> list[str]:
        values, order = self.values[rung], list(self.values[rung])
        return sorted(values, key=lambda job: (-values[job], -order.index(job)))[: len(values) // ETA]


class Awaited(AsMeant):
    """Counts jobs that are still training toward a rung in the size of that rung."""

    def best(self, rung: int) -> list[str]:
        values = self.values[rung]
        size = sum(heading >= rung for heading in self.heading.values())
        return sorted(values, key=lambda job: -values[job])[: size // ETA]


class GrowsFirst(AsMeant):
    """Follows the indentation of the paper's listing, so that it checks only the top rung before it starts a new job."""

    def find(self, available: list[str]) -> tuple[str, int] | None:
        for rung in self.scan()[:1]:
            for job in self.best(rung):
                if job not in self.promoted[rung] and job in available:
                    return job, rung
        return None


class WorstFirst(AsMeant):
    """Promotes the worst promotable job instead of the best."""

    def best(self, rung: int) -> list[str]:
        return list(reversed(super().best(rung)))
