from finalists import Finalists

from hopyard.policy import JobState, Policy
from hopyard.policy.conformance import PolicyConformance
from hopyard.policy.testing import VirtualCluster, VirtualStep


class TestFinalists(PolicyConformance):
    """The conformance suite of policies."""

    def make_policy(self) -> Policy:
        return Finalists(seconds=5, trial=2, finalists=2)


def test_trials_until_the_bell_then_the_best_to_their_ends() -> None:
    values = {1: 0.5, 2: 0.9, 3: 0.7, 4: 0.2, 5: 0.8}
    cluster = VirtualCluster(
        Finalists(seconds=7, trial=2, finalists=2),
        slots=1,
        jobs=10,
        max_position=6,
        curve=lambda job, position: VirtualStep({"accuracy": values[job["x"]]}, seconds=1),
    )
    cluster.run()
    # The timer fires at 7 s, in the fourth trial. From 8 s on the best two jobs train their other 4 units.
    runs = [(run.job, run.began, run.start, run.position) for run in cluster.runs]
    assert runs[:4] == [("1", 0, 0, 2), ("2", 2, 0, 2), ("3", 4, 0, 2), ("4", 6, 0, 2)]
    assert runs[4:] == [("2", 8, 2, 6), ("3", 12, 2, 6)]
    assert [job.id for job in cluster.jobs.values() if job.state is JobState.TERMINATED] == ["1", "4"]
