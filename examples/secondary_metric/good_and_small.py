"""POP for models that are small and accurate: with a second metric, and an end condition over all jobs."""

import math
from typing import Any

from hopyard.policy import ApplicationStat, Cluster, JobView
from hopyard_policies.pop import PopPolicy


class GoodAndSmall(PopPolicy):
    """Ends the search when a model is sparse enough and hardly worse than the best report of any job.

    The experiment has no target, because a target would end it with a good model of any size.

    Args:
        sparsity: The minimum sparsity of the winner.
        accuracy: Its minimum accuracy.
        loss: The maximum difference of its accuracy from the best one of all jobs, at least 0.
        pop: Parameters of POP.
    """

    def __init__(self, sparsity: float, accuracy: float, loss: float, **pop: Any) -> None:
        super().__init__(**pop)
        self.sparsity, self.accuracy, self.loss = sparsity, accuracy, loss

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """Check a report; this up-call is made for every report of every job."""
        accuracy, sparsity = (stat.report.metrics.get(name, math.nan) for name in ("accuracy", "sparsity"))
        if sparsity >= self.sparsity and accuracy >= self.aim(cluster):
            cluster.end_experiment(f"accuracy {accuracy:.3f} with sparsity {sparsity:.2f}", winner=stat.job)

    def aim(self, cluster: Cluster) -> float:
        """Return the target of POP's confidences: the accuracy that is good enough, given the best one so far."""
        best = cluster.incumbent
        return max(self.accuracy, best.value - self.loss if best is not None else 0.0)

    def is_poor(self, cluster: Cluster, job: JobView) -> bool:
        """Return whether POP considers the job poor, or it has no sparsity after half of its training."""
        late = 2 * job.position >= job.max_position
        dense = not any(point.metrics.get("sparsity", 0.0) > 0 for point in cluster.curve(job.id))
        return super().is_poor(cluster, job) or (late and dense)
