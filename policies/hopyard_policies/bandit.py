"""The bandit policy: at each boundary a job goes on only if its best is near enough to the best of all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hopyard.policy import CONTINUE, TERMINATE, Cluster, Decision, IterationFinish, JobState, JobView
from hopyard_policies.base.parameters import need_whole
from hopyard_policies.default import DefaultPolicy


class BanditPolicy(DefaultPolicy):
    """Action elimination as TuPAQ uses it for training (HyperDrive, section 5.3), on top of the greedy default policy.

    Jobs train first come, first served, each on a machine until it ends; a job that is ended makes room for the next
    one. At each multiple of `evaluation_boundary` a job goes on if its best value so far, enlarged by the part `epsilon`,
    is better than the best of the experiment: `jobBest * (1 + epsilon) > globalBest`. With the paper's half, a job may be
    worse than the best by no more than half of its own value. Between boundaries no run waits for a decision.

    The paper's rule is for a metric to maximise that is positive. What it says there is that two values lie within the
    factor 1 + epsilon of each other, and that is what is asked here whatever the mode and the sign: the gap between
    the two must be less than `epsilon` times the smaller of their magnitudes. So

    * a metric to minimise: `jobBest < globalBest * (1 + epsilon)`; a loss may be half as large again as the best one;
    * negative values are treated as their mirror images: maximising a metric and minimising its negative is the same;
    * values on different sides of zero, or zero and something better, are within no factor: the worse job ends. For a
      metric that crosses zero (a reward, say) report one that is scaled to 0..1;
    * a job that is as good as the best always goes on, and so does every job while nobody has a finite value;
    * NaN and infinities are worst: they are no job's best, and a job that has nothing else ends.

    A boundary that no report meets is judged at the first report beyond it. A boundary that a job had reached when its
    run was lost, paused or preempted before a decision was taken is judged at the job's next new report.

    Args:
        evaluation_boundary: Distance of the boundaries, at least 1, in the experiment's unit; of no effect from a job's max
            position on. The paper recommends 5 to 10 % of that.
        epsilon: How much better a job's best must become to beat the best of all, relative to itself; at least 0, finite.
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
        self._passed: dict[str, int] = {}  # boundaries at which a job was judged

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Judges the job at a boundary; it trains on undisturbed to the next one."""
        job = cluster.jobs[event.job]
        # A run that is ending already takes no decision, so its boundary stays open.
        if event.at_until or event.report.finished or job.state is JobState.SUSPENDING:
            return CONTINUE
        boundaries = event.position // self._every
        if boundaries > self._passed.get(job.id, 0):
            self._passed[job.id] = boundaries
            if not self._near_the_best(cluster, job.id):
                return TERMINATE
        return Decision.proceed(self._undisturbed(job))

    def _undisturbed(self, job: JobView) -> int:
        return min((self._passed.get(job.id, 0) + 1) * self._every, job.max_position)

    def _near_the_best(self, cluster: Cluster, job: str) -> bool:
        incumbent = cluster.incumbent
        if incumbent is None:
            return True
        metric = cluster.experiment.metric
        values = [point.metrics.get(metric, math.nan) for point in cluster.curve(job)]
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            return False
        own, best = (max if cluster.experiment.mode == "max" else min)(finite), incumbent.value
        # Evaluations by parts may still move the incumbent, so the job may even be the better one.
        return not cluster.experiment.better(best, own) or abs(best - own) < self._epsilon * min(abs(best), abs(own))
