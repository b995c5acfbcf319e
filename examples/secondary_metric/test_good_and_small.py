from collections.abc import Mapping
from typing import Any

from good_and_small import GoodAndSmall

from hopyard.policy import JobState, Policy
from hopyard.policy.conformance import PolicyConformance
from hopyard.policy.testing import VirtualCluster, VirtualStep


class TestGoodAndSmall(PolicyConformance):
    """The conformance suite of policies."""

    leaves_jobs = True  # The experiment may end before all jobs have ended.

    def make_policy(self) -> Policy:
        return GoodAndSmall(sparsity=0.5, accuracy=0.9, loss=0.05, evaluation_boundary=2)


def cluster_of(*curves: list[tuple[float, float]]) -> VirtualCluster:
    """Run one job for each curve of (accuracy, sparsity), all at the same time, one unit per second."""

    def step(job: Mapping[str, Any], position: int) -> VirtualStep:
        accuracy, sparsity = curves[job["x"] - 1][position - 1]
        return VirtualStep({"accuracy": accuracy, "sparsity": sparsity}, seconds=1)

    policy = GoodAndSmall(sparsity=0.5, accuracy=0.9, loss=0.05, evaluation_boundary=2)
    cluster = VirtualCluster(policy, slots=len(curves), jobs=len(curves), max_position=4, curve=step)
    cluster.run()
    return cluster


def test_a_good_model_that_is_not_small_ends_nothing() -> None:
    cluster = cluster_of([(0.95, 0.1), (0.96, 0.2), (0.97, 0.3), (0.98, 0.4)])
    assert (cluster.over, cluster.now) == ("all jobs ended", 4)


def test_small_and_hardly_worse_than_the_best_ends_all() -> None:
    best, small = (
        [(0.9, 0.1), (0.98, 0.1), (0.98, 0.1), (0.98, 0.1)],
        [(0.8, 0.3), (0.92, 0.6), (0.94, 0.6), (0.9, 0.7)],
    )
    cluster = cluster_of(best, small)  # 0.92 is good enough, but 0.06 worse than 0.98.
    assert (cluster.over, cluster.now) == ("accuracy 0.940 with sparsity 0.60", 3)


def test_half_way_a_job_without_sparsity_ends() -> None:
    cluster = cluster_of([(0.95, 0.0)] * 4, [(0.91, 0.0), (0.92, 0.1), (0.93, 0.2), (0.94, 0.3)])
    assert [job.state for job in cluster.jobs.values()] == [JobState.TERMINATED, JobState.COMPLETED]
