"""A policy that asks a predictor, and terminates jobs that will probably not reach the best value so far."""

from hopyard.policy import Cluster, Decision, IterationFinish, PredictionReady
from hopyard_policies.default import DefaultPolicy


class EndsHopeless(DefaultPolicy):
    """Asks for a prediction of each job at its boundaries, while it continues to train, and terminates jobs that are hopeless.

    Args:
        every: The distance of the boundaries, at least 1, in the experiment's unit.
        chance: A job continues if it will exceed the best value so far at its end with at least this probability.
    """

    def __init__(self, every: int = 5, chance: float = 0.05) -> None:
        super().__init__()
        if every < 1 or not 0 <= chance <= 1:
            raise ValueError(f"every must be at least 1 and chance from 0 to 1; found {every} and {chance}")
        self.every, self.chance = every, chance

    def on_iteration_finish(self, cluster: Cluster, event: IterationFinish) -> Decision:
        best = cluster.incumbent
        if event.position % self.every == 0 and not event.at_until and best is not None and best.job != event.job:
            cluster.predict(event.job, target=best.value)
        return super().on_iteration_finish(cluster, event)  # training continues meanwhile

    def on_prediction(self, cluster: Cluster, ready: PredictionReady) -> None:
        # An error is no reason to terminate the job, and the job may have ended before the answer.
        hopeless = not ready.error and ready.result.reaches and ready.result.reaches[-1] < self.chance
        if hopeless and not cluster.jobs[ready.job].state.ended:
            cluster.terminate_job(ready.job)
