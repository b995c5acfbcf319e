"""POP for models that are to be small without being worse: a second metric, and an end that is a condition over all jobs."""

import math
from typing import Any

from hopyard.policy import ApplicationStat, Cluster, JobView
from hopyard_policies.pop import PopPolicy


class GoodAndSmall(PopPolicy):
    """The search is over when a model is sparse enough, and hardly worse than the best that any job has reported.

    The experiment has no target: one would end it as soon as a model is good, however large it is.

    Args:
        sparsity: The least sparsity of a model that counts.
        accuracy: Its least accuracy.
        loss: How much worse than the best accuracy of all jobs it may be, at least 0.
        pop: Parameters of POP.
    """

    def __init__(self, sparsity: float, accuracy: float, loss: float, **pop: Any) -> None:
        super().__init__(**pop)
        self.sparsity, self.accuracy, self.loss = sparsity, accuracy, loss

    def application_stat(self, cluster: Cluster, stat: ApplicationStat) -> None:
        """Every report of every job comes here."""
        accuracy, sparsity = (stat.report.metrics.get(name, math.nan) for name in ("accuracy", "sparsity"))
        if sparsity >= self.sparsity and accuracy >= self.aim(cluster):
            cluster.end_experiment(f"accuracy {accuracy:.3f} with sparsity {sparsity:.2f}", winner=stat.job)

    def aim(self, cluster: Cluster) -> float:
        """What POP's confidences are about: the accuracy that is good enough as things stand."""
        best = cluster.incumbent
        return max(self.accuracy, best.value - self.loss if best is not None else 0.0)

    def is_poor(self, cluster: Cluster, job: JobView) -> bool:
        """Half-way, a job without any sparsity is poor as well."""
        late = 2 * job.position >= job.max_position
        dense = not any(point.metrics.get("sparsity", 0.0) > 0 for point in cluster.curve(job.id))
        return super().is_poor(cluster, job) or (late and dense)
