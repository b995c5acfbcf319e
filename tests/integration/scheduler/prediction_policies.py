"""Policies that request predictions."""

from __future__ import annotations

from hopyard.policy import CONTINUE, PARK, Cluster, Decision, IterationFinish, Policy, PredictionReady
from hopyard.predictor import Prediction
from hopyard_policies.default import DefaultPolicy


class Forecast(DefaultPolicy):
    """Requests a prediction at each iteration, continues training, and labels the job with the result (-1: no prediction)."""

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        if not event.at_until:
            cluster.predict(event.job)
        return CONTINUE if event.at_until else Decision.proceed(event.position + 1)

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        cluster.label_job(prediction.job, expected(prediction))


class Patient(Policy):
    """Trains a job for `step` units, then parks it until its prediction arrives.

    Args:
        step: Units between two predictions.
    """

    def __init__(self, step: int = 1) -> None:
        self.step = step
        self.asked: dict[str, str] = {}

    def allocate_jobs(self, cluster: Cluster) -> None:
        for _ in range(cluster.experiment.jobs_left):
            cluster.create_job()
        for slot, job in zip(cluster.idle_slots(), cluster.idle_jobs(), strict=False):
            cluster.start_job(job.id, slot.id, until=min(job.position + self.step, job.max_position))

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        if not event.at_until or event.position == cluster.jobs[event.job].max_position:
            return CONTINUE
        self.asked[event.job] = cluster.predict(event.job)
        return PARK

    def on_prediction(self, cluster: Cluster, prediction: PredictionReady) -> None:
        cluster.label_job(prediction.job, expected(prediction))
        job = cluster.jobs[prediction.job]
        if self.asked[job.id] == prediction.ticket and job.parked:
            cluster.amend_run(job.id, until=min(job.position + self.step, job.max_position))


def expected(prediction: PredictionReady) -> float:
    """Return the mean at the last predicted position; -1: the prediction failed."""
    if prediction.result is None:
        assert prediction.error
        return -1.0
    assert isinstance(prediction.result, Prediction)
    return prediction.result.mean[-1]
