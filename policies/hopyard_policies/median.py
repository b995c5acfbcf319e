"""The median stopping rule: terminates a job whose best value is worse than the median of the other jobs' averages."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from typing import Any

from hopyard.policy import CONTINUE, TERMINATE, Cluster, Decision, IterationFinish, JobState, JobView
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.default import DefaultPolicy


class MedianPolicy(DefaultPolicy):
    """Vizier's median stopping rule (Golovin et al., 2017, section 3.2.2), on top of the greedy default policy.

    Jobs train in order of creation, each on one slot until it ends. A terminated job frees its slot for the next
    one. At each multiple of `evaluation_boundary` a job is terminated if its best value so far is strictly worse than
    the median of the running averages of the other jobs at the same boundary. All jobs that reached the boundary are
    included, also those that have ended. The running average of a job is the mean of all its reports up to the one that was
    judged at that boundary. Between boundaries no run waits for a decision.

    The rule does not depend on the scale of the metric and needs neither a target nor a predictor. It compares a best
    value with averages, so it is conservative: about half of the jobs pass a boundary even if they are only average.

    NaN and infinities are the worst values. A job without a finite value is worse than any finite median, and an
    average that includes such a value is the worst average. A median that is not finite terminates no job. Reports without the
    metric are ignored, and a job that has not reported it yet is judged at its first report with the metric.

    If no report falls on a boundary, the next report is judged. A job that trains again after a loss is not judged
    again.

    Args:
        evaluation_boundary: Units between two boundaries, at least 1.
        grace: No job is terminated below this position, at least 0. The averages of jobs below it are used all the same.
        least_jobs: Number of other jobs that must have reached the boundary before a job is judged, at least 1.
        ahead: Number of jobs created in advance of free slots, in 0..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); None: one slot for each job.

    Raises:
        ValueError: An argument is out of range.
    """

    # It decides only at boundaries, where runs wait, so other up-calls are not needed.
    every_iteration = False
    ends_jobs = False
    version = "2"

    def __init__(
        self,
        evaluation_boundary: int = 10,
        grace: int = 0,
        least_jobs: int = 5,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value, least in (
            ("evaluation_boundary", evaluation_boundary, 1),
            ("grace", grace, 0),
            ("least_jobs", least_jobs, 1),
        ):
            need_whole(name, value, least)
        super().__init__(ahead=ahead, elastic=elastic)
        self._every = evaluation_boundary
        self._grace = grace
        self._least = least_jobs
        self._passed: dict[str, int] = {}  # number of boundaries that a job has passed
        self._averages: dict[int, list[float]] = {}  # by boundary, ascending; larger is better, minus infinity is worst

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """At a boundary, terminate the job if its best value is worse than the median of the other jobs' averages.

        Otherwise the job trains to the next boundary without a decision.
        """
        job = cluster.jobs[event.job]
        # A run that is ending ignores decisions, so the boundary remains to be judged.
        if event.at_until or event.report.finished or job.state is JobState.SUSPENDING:
            return CONTINUE
        boundary = event.position // self._every
        values = list(cluster.ratings(job.id).values())
        if values and boundary > self._passed.get(job.id, 0):
            self._passed[job.id] = boundary
            others = self._averages.setdefault(boundary, [])
            behind = len(others) >= self._least and max(values) < _median(others)
            bisect.insort(others, _average(values))
            if behind and event.position >= self._grace:
                return TERMINATE
        return Decision.proceed(self._undisturbed(job))

    def _undisturbed(self, job: JobView) -> int:
        return min((self._passed.get(job.id, 0) + 1) * self._every, job.max_position)


def _average(values: list[float]) -> float:
    # Divide before summing, because the sum of large values may overflow; clamp, because rounding must not exceed the
    # best.
    average = math.fsum(value / len(values) for value in values)
    return min(max(average, min(values)), max(values))


def _median(ordered: list[float]) -> float:
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return ordered[middle - 1] / 2 + ordered[middle] / 2
