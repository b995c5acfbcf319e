"""The early-termination policy: terminates a job that is unlikely to become as good as the best."""

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
    """The predictive termination criterion of Domhan et al. (IJCAI 2015), for many slots (HyperDrive, section 5.3).

    Jobs train in order of creation, as with the default policy. At each multiple of `evaluation_boundary` the policy
    requests from the predictor P(y_m >= best | y_1..n), where m is the position at which the job would be complete and best
    is the best value of all jobs so far. The job trains while the prediction is pending. If the probability is below `delta`,
    the job is terminated at its next report. No prediction is requested for the job that has the best value, nor before any
    value exists. A failed prediction has no effect.

    Args:
        evaluation_boundary: Distance between boundaries in the experiment's unit, at least 1.
        delta: Jobs with a smaller probability are terminated; in [0, 1].
        ahead: Number of jobs created in advance of free slots, in 0..10000.
        elastic: How jobs use several slots each (`hopyard_policies.elastic`); None: one slot for each job.

    Raises:
        ValueError: An argument is out of range.
    """

    # It decides only at boundaries, where runs wait, so other up-calls are not needed.
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
        self._passed: dict[str, int] = {}  # number of boundaries that a job has passed
        self._asked: dict[str, str] = {}  # ticket of the pending prediction of a job

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        """At a boundary, request a prediction; the job trains to the next boundary without waiting for the answer."""
        job = cluster.jobs[event.job]
        if event.at_until or event.report.finished or job.state is JobState.SUSPENDING:
            return CONTINUE
        boundaries = event.position // self._every
        if boundaries > self._passed.get(job.id, 0):
            self._passed[job.id] = boundaries
            incumbent = cluster.incumbent
            # At most one pending request for each job: with slow predictions, each answer would be discarded, because
            # a newer request exists.
            if incumbent is not None and incumbent.job != job.id and job.id not in self._asked:
                self._asked[job.id] = cluster.predict(job.id, target=incumbent.value)
        return Decision.proceed(self._undisturbed(job))

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        """Terminate the job if the predicted probability that it becomes as good as the best job so far is below `delta`.

        Answers that are not for the pending request of a job, errors, and predictions for ended jobs are ignored.
        """
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
        """If the engine refused a prediction request, delete the record of the pending request."""
        super().on_refused(cluster, verdict)
        if isinstance(verdict.command, Predict) and self._asked.get(verdict.command.job) == verdict.command.ticket:
            del self._asked[verdict.command.job]

    def _undisturbed(self, job: JobView) -> int:
        return min((self._passed.get(job.id, 0) + 1) * self._every, job.max_position)
