"""The median stopping rule: at each boundary a job ends if its best is worse than what the others were like on average."""

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

    Jobs train first come, first served, each on a machine until it ends; a job that is ended makes room for the next one.
    At each multiple of `evaluation_boundary` a job ends if its best value so far is strictly worse than the median of the
    running averages of the other jobs at the same boundary: of all jobs that came that far, whatever became of them. The average of
    a job is over all its reports up to where it was judged there. Between boundaries no run waits for a decision.

    The rule knows no unit of the metric and needs neither a target nor a predictor. As it compares a job's best with averages, it
    is careful: about half of the jobs pass a boundary at which they are merely average.

    NaN and infinities are worst: a job without a finite value is worse than any median that is finite, and an average with
    such a value in it is the worst one. A median that is not finite ends nobody.

    A boundary that no report meets is judged at the next report. A job that is trained again after a loss is not judged again.

    Args:
        evaluation_boundary: Units between two boundaries, at least 1.
        grace: No job is judged below this position, at least 0; its average counts there all the same.
        least_jobs: So many others must have come as far before a job is judged, at least 1.
        ahead: Jobs created beyond those that have a machine, in 0..10000.
        elastic: As `default` has it.

    Raises:
        ValueError: An argument is out of range.
    """

    # Runs wait at boundaries, and all that it has to say it says there.
    every_iteration = False
    ends_jobs = False

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
        self._passed: dict[str, int] = {}  # boundaries that a job has behind it
        self._averages: dict[int, list[float]] = {}  # by boundary, rising; larger is better, minus infinity is worst

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Judges the job at a boundary; it trains on undisturbed to the next one."""
        job = cluster.jobs[event.job]
        # A run that is ending already takes no decision, so its boundary stays open.
        if event.at_until or event.report.finished or job.state is JobState.SUSPENDING:
            return CONTINUE
        boundary = event.position // self._every
        if boundary > self._passed.get(job.id, 0):
            self._passed[job.id] = boundary
            values = _values(cluster, job.id)
            others = self._averages.setdefault(boundary, [])
            behind = len(others) >= self._least and max(values) < _median(others)
            bisect.insort(others, _average(values))
            if behind and event.position >= self._grace:
                return TERMINATE
        return Decision.proceed(self._undisturbed(job))

    def _undisturbed(self, job: JobView) -> int:
        return min((self._passed.get(job.id, 0) + 1) * self._every, job.max_position)


def _values(cluster: Cluster, job: str) -> list[float]:
    """What a job reported, so that larger is better and minus infinity is what is not finite."""
    terms = cluster.experiment
    return [terms.rated(point.metrics.get(terms.metric, math.nan)) for point in cluster.curve(job)]


def _average(values: list[float]) -> float:
    # Each is divided first, as the sum of large ones may be no double; and rounding shall not lift it above the best.
    average = math.fsum(value / len(values) for value in values)
    return min(max(average, min(values)), max(values))


def _median(ordered: list[float]) -> float:
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return ordered[middle - 1] / 2 + ordered[middle] / 2
