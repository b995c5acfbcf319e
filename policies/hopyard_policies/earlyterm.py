"""The early-termination policy: a job ends when its curve will hardly ever be as good as the best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hopyard.policy import (
    CONTINUE,
    Cluster,
    Decision,
    IterationFinish,
    JobState,
    JobView,
    PredictionReady,
    Verdict,
)
from hopyard.policy.vocabulary import Predict
from hopyard_policies.base.parameters import need_part, need_whole
from hopyard_policies.default import DefaultPolicy


class EarlyTermPolicy(DefaultPolicy):
    """The predictive termination criterion of Domhan et al. (IJCAI 2015), for many machines (HyperDrive, section 5.3).

    Jobs train first come, first served, as with the default policy. At each multiple of `evaluation_boundary` the predictor is asked
    for P(y_m >= best | y_1..n), m where the job would be complete, and best the best report of all jobs so far. The job trains on
    meanwhile; it ends at its next report if the chance is below `delta`. Who holds the best report itself is not asked about, nor
    is anybody before there is one. A prediction that fails ends nothing.

    Args:
        evaluation_boundary: Distance of the boundaries, at least 1, in the experiment's unit.
        delta: A job with a smaller chance ends; in [0, 1].
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
        evaluation_boundary: int = 30,
        delta: float = 0.05,
        ahead: int = 2,
        elastic: Mapping[str, Any] | None = None,
    ) -> None:
        need_whole("evaluation_boundary", evaluation_boundary)
        need_part("delta", delta)
        super().__init__(ahead=ahead, elastic=elastic)
        self._every = evaluation_boundary
        self._delta = delta
        self._passed: dict[str, int] = {}  # boundaries at which a job was looked at
        self._asked: dict[str, str] = {}  # the ticket that a job's prediction is awaited with

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """Asks about the job at a boundary; it trains on undisturbed to the next one."""
        job = cluster.jobs[event.job]
        if event.at_until or event.report.finished or job.state is JobState.SUSPENDING:
            return CONTINUE
        boundaries = event.position // self._every
        if boundaries > self._passed.get(job.id, 0):
            self._passed[job.id] = boundaries
            incumbent = cluster.incumbent
            # A question that is still open is not asked anew: slow predictions would never be heard.
            if incumbent is not None and incumbent.job != job.id and job.id not in self._asked:
                self._asked[job.id] = cluster.predict(job.id, target=incumbent.value)
        return Decision.proceed(self._undisturbed(job))

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """Ends a job that will hardly ever be as good as the best."""
        if self._asked.get(prediction.job) != prediction.ticket:
            return
        del self._asked[prediction.job]
        job = cluster.jobs.get(prediction.job)
        if prediction.error or job is None or job.state.ended:
            return
        chances = prediction.result.reaches
        if chances and math.isfinite(chances[-1]) and chances[-1] < self._delta:
            cluster.terminate_job(job.id)

    def on_refused(self, cluster: Cluster, verdict: Verdict) -> None:
        """What was not asked is not waited for."""
        super().on_refused(cluster, verdict)
        if isinstance(verdict.command, Predict) and self._asked.get(verdict.command.job) == verdict.command.ticket:
            del self._asked[verdict.command.job]

    def _undisturbed(self, job: JobView) -> int:
        return min((self._passed.get(job.id, 0) + 1) * self._every, job.max_position)
