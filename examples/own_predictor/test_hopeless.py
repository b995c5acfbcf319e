from hopeless import EndsHopeless
from slowing import SlowingDown

from hopyard.policy import JobState, Policy
from hopyard.policy.conformance import PolicyConformance
from hopyard.policy.testing import VirtualCluster, VirtualStep
from hopyard.policy.vocabulary import Ask, Predict
from hopyard.predictor import Question
from hopyard.predictor.testing import curve


class TestEndsHopeless(PolicyConformance):
    """The conformance suite of policies; predictions arrive on time, late or never."""

    symmetric = normalizes = False  # targets are values of the metric, and the curves of `respond` have one scale

    def make_policy(self) -> Policy:
        return EndsHopeless(every=2, chance=0.2)

    def respond(self, question: Predict | Ask) -> object:
        if isinstance(question, Predict) and question.job != "3":
            return SlowingDown().predict(Question(curve([0.1, 0.2]), 6, target=question.parameters["target"]))
        return super().respond(question)


def test_a_job_that_will_not_beat_the_best_is_ended() -> None:
    # A cluster as in the experiment: the answer depends on the job's own curve.
    def respond(question: Predict | Ask) -> object:
        assert isinstance(question, Predict)
        values = [point.metrics["accuracy"] for point in cluster.curve(question.job)]
        asked = Question(curve(values), 40, target=question.parameters["target"], low=0.0, high=1.0)
        return SlowingDown().predict(asked)

    cluster = VirtualCluster(
        EndsHopeless(every=10),
        slots=1,
        jobs=3,
        max_position=40,
        curve=lambda job, position: VirtualStep(
            {"accuracy": {1: 0.8, 2: 0.2, 3: 0.9}[job["x"]] * (1 - 0.8**position)}, seconds=1
        ),
        respond=respond,
    )
    cluster.run()
    ended = {job.id: (job.state, job.position) for job in cluster.jobs.values()}
    assert ended["1"] == (JobState.COMPLETED, 40)
    assert ended["2"][0] is JobState.TERMINATED
    assert ended["3"] == (JobState.COMPLETED, 40)
