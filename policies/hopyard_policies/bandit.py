"""The bandit policy: at each boundary, terminates jobs whose best value is too far from the best of the experiment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hopyard.policy import CONTINUE, TERMINATE, Cluster, Decision, IterationFinish, JobState, JobView
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.default import DefaultPolicy


class BanditPolicy(DefaultPolicy):
    """Action elimination as in TuPAQ (HyperDrive, section 5.3), on top of the greedy default policy.

    Jobs train in order of creation, each on one slot until it ends. A terminated job frees its slot for the next
    one. At each multiple of `evaluation_boundary` a job continues if its best value so far, increased by the fraction
    `epsilon`, is better than the best of the experiment: `jobBest * (1 + epsilon) > globalBest`. With the paper's value
    of 0.5, the gap may be at most half of the job's own value. Between boundaries no run waits for a decision.

    The values are rated values (`Cluster.ratings`). If the range of the metric is known (`metric.min` and `metric.max`), they
    are normalized as in section 6.3 (equation 4), 0 for the worst and 1 for the best possible value. Otherwise they are the values
    of the metric.

    The paper states the rule for a positive metric that is maximized. Its meaning is that the two values differ by less
    than the factor 1 + epsilon. This policy applies that meaning to both modes and signs: the gap must be less than
    `epsilon` times the smaller of the two magnitudes. It follows:

    * metric to minimize, without a range: `jobBest < globalBest * (1 + epsilon)`; with epsilon 0.5, a loss may be 50 % above
      the best one. With a range, an error and the corresponding accuracy give the same decisions;
    * negative values: maximizing a metric and minimizing its negative give the same decisions;
    * values of different sign, or zero and a better value: no factor relates them, so the worse job is terminated.
      Give a metric that crosses zero, such as a reward, a range. A normalized value beyond the range may be negative, too;
    * a job that is as good as the best always continues, and all jobs continue while no finite value exists;
    * NaN and infinities are never a best value. A job that reported nothing else is terminated;
    * a job that has not reported the metric yet is judged at its first report with the metric.

    If no report falls on a boundary, the first report beyond it is judged. If a run was lost, paused or preempted at a
    boundary before the decision, the job is judged at its next new report.

    Args:
        evaluation_boundary: Distance between boundaries in the experiment's unit, at least 1. Has no effect if it is
            not below a job's max position. The paper recommends 5 to 10 % of the max position.
        epsilon: Allowed gap to the best value, as a fraction of the job's own value; finite, at least 0.
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
        epsilon: float = 0.5,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        need_whole("evaluation_boundary", evaluation_boundary)
        if type(epsilon) not in (int, float) or not 0 <= epsilon < math.inf:
            raise ValueError(f"epsilon is {epsilon!r}; it must be a finite number of at least 0")
        super().__init__(ahead=ahead, elastic=elastic)
        self._every = evaluation_boundary
        self._epsilon = epsilon
        self._passed: dict[str, int] = {}  # number of boundaries at which a job was judged

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """At a boundary, terminate the job if its best value is too far from the best of the experiment.

        Otherwise the job trains to the next boundary without a decision.
        """
        job = cluster.jobs[event.job]
        # A run that is ending ignores decisions, so the boundary remains to be judged.
        if event.at_until or event.report.finished or job.state is JobState.SUSPENDING:
            return CONTINUE
        boundaries = event.position // self._every
        ratings = cluster.ratings(job.id)
        if ratings and boundaries > self._passed.get(job.id, 0):
            self._passed[job.id] = boundaries
            if not self._near_the_best(cluster, max(ratings.values())):
                return TERMINATE
        return Decision.proceed(self._undisturbed(job))

    def _undisturbed(self, job: JobView) -> int:
        return min((self._passed.get(job.id, 0) + 1) * self._every, job.max_position)

    def _near_the_best(self, cluster: Cluster, own: float) -> bool:
        """Return whether the best rated value of a job is near enough to that of the experiment."""
        if cluster.incumbent is None:
            return True
        best = cluster.experiment.rated(cluster.incumbent.value)
        # The incumbent may still change as parts of an evaluation arrive, so the job may even be the better one.
        return own >= best or best - own < self._epsilon * min(abs(best), abs(own))
