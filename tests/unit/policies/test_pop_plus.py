"""Tests of pop_plus on small simulated searches: which jobs stay, which are suspended, and which come next."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from typing_extensions import override

from hopyard.policy import JobState, JobView, Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard.predictor import Prediction, Question
from hopyard_policies.pop_plus import PopPlusPolicy, Prospect
from hopyard_simulator import PredictionCache, Result, TraceWorkload, simulate
from tests.unit.policies.test_pop import Told, curved, minimised, runs, trace

pytestmark = pytest.mark.quick


def search(*traces: Any, slots: int = 1, target: float | None = 0.9, **options: Any) -> Result:
    parameters = {"first_look": 2, **options.pop("parameters", {})}
    return simulate(
        TraceWorkload(traces),
        PopPlusPolicy,
        slots=slots,
        target=target,
        parameters=parameters,
        predictor=Told(),
        details=True,
        **options,
    )


def test_a_hopeless_job_makes_room_and_comes_back_last() -> None:
    # Predicted at 2.0, job 1 is suspended at 3.0; so is job 2, which is worth less than a new one. Then no other job is left.
    result = search(*(trace(job, p) for job, p in ((1, 0.0), (2, 0.01), (3, 0.9))))
    order = [job for job, _, _ in runs(result)]
    assert runs(result)[0] == ("1", 0.0, 3.0)
    assert order == ["1", "2", "3", "2", "1"]
    assert result.jobs_at_R[-1][1] == 3


def test_a_job_that_is_worth_more_than_a_new_one_trains_to_its_end() -> None:
    result = search(*(trace(job, 0.9) for job in (1, 2)))
    assert runs(result) == [("1", 0.0, 10.0), ("2", 10.0, 20.0)]


def test_nothing_is_ended_whatever_is_foretold() -> None:
    result = search(*(trace(job, 0.0, 0.1) for job in (1, 2, 3)), parameters={"kill_threshold": 0.15})
    assert result.jobs_terminated == 0
    assert result.jobs_at_R[-1][1] == 3


def test_a_job_below_the_kill_threshold_has_less_of_a_chance() -> None:
    # The prediction for job 2 is higher, but it is below the kill threshold: both are suspended for job 3, and job 1 resumes first.
    jobs = (trace(1, 0.02), trace(2, 0.024, 0.1), trace(3, 0.8))
    assert [job for job, _, _ in runs(search(*jobs))] == ["1", "2", "3", "2", "1"]
    assert [job for job, _, _ in runs(search(*jobs, parameters={"kill_threshold": 0.15}))] == ["1", "2", "3", "1", "2"]


def test_a_job_whose_learning_crashed_has_less_of_a_chance() -> None:
    # As above, but job 2 was above the threshold at 1. At the prediction at 3 its low values are one unit apart.
    jobs = (trace(1, 0.02), curved(2, 0.024, [0.2] + [0.1] * 9), trace(3, 0.8))
    for crash_after, order in ((1, ["1", "2", "3", "1", "2"]), (9, ["1", "2", "3", "2", "1"])):
        parameters = {"kill_threshold": 0.15, "first_look": 3, "crash_after": crash_after}
        result = search(*jobs, parameters=parameters)
        assert ([job for job, _, _ in runs(result)], result.jobs_terminated) == (order, 0)


def test_nobody_leaves_when_nobody_waits() -> None:
    result = search(trace(1, 0.0), trace(2, 0.0), slots=2)
    assert runs(result) == [("1", 0.0, 10.0), ("2", 0.0, 10.0)]


def test_it_asks_at_few_boundaries() -> None:
    # 40 reports: looks at 2, 4, 8, 13, 18, 23, 28, 33, 38.
    foreseen = PredictionCache()
    search(trace(1, 0.9, reports=40), foreseen=foreseen)
    assert foreseen.asked == 9


def test_a_suspended_job_pays_for_the_switch() -> None:
    # Suspended job 2 would be worth a little more than job 1 on its slot, 0.11 in 8 s against 0.1, but a switch takes 2 s.
    policy = PopPlusPolicy(first_look=2)
    for job, chance in (("1", 0.10), ("2", 0.11)):
        policy._experience.look(job, Prospect(chance, 8.0), 2.0, 10.0)
    first, second = (JobView(job, JobState.SUSPENDED, {}, 2) for job in ("1", "2"))
    assert policy._worth(first, stays=True) < policy._worth(second)
    policy._starting.add(1.0)
    policy._leaving.add(1.0)
    assert policy._worth(first, stays=True) > policy._worth(second)


def test_a_prediction_that_fails_leaves_a_job_as_good_as_a_new_one() -> None:
    result = search(trace(1, 0.9, silent=1), trace(2, 0.9, silent=1))
    assert runs(result) == [("1", 0.0, 10.0), ("2", 10.0, 20.0)]


def test_without_a_target_the_best_so_far_is_the_aim() -> None:
    # The dual problem, with the dynamic target: the target of each prediction, at 2, is a step above the best report so far.
    asked: list[float | None] = []

    class Asked(Told):
        @override
        def predict(self, question: Question) -> Prediction:
            asked.append(question.target)
            return super().predict(question)

    result = simulate(
        TraceWorkload([trace(1, 1.0, 0.3, 3), trace(2, 1.0, 0.6, 3)]),
        PopPlusPolicy,
        slots=1,
        parameters={"first_look": 2, "step": 0.05},
        max_time=60.0,
        predictor=Asked(),
    )
    assert asked == [pytest.approx(0.35), pytest.approx(0.65)]
    assert result.best == 0.6


def test_minimising_the_negative_is_the_same_search() -> None:
    traces = [trace(job, p, value) for job, p, value in ((1, 0.5, 0.2), (2, 0.9, 0.1), (3, 0.01, 0.3), (4, 1.0, 0.4))]
    assert search(*traces, slots=2).runs == search(*map(minimised, traces), slots=2, target=-0.9).runs


@pytest.mark.parametrize(
    ("name", "value"), [("first_look", 0), ("crash_after", 0), ("step", -1), ("step", True), ("ahead", 0)]
)
def test_parameters_out_of_range(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        PopPlusPolicy(**{name: value})  # type: ignore[arg-type]


@pytest.mark.quick(merge=IN_PROCESSES)
class TestConformance(PolicyConformance):
    terminates: ClassVar = False
    symmetric: ClassVar = False  # Targets of its predictions can be negative; a test above compares its searches.

    @override
    def make_policy(self) -> Policy:
        return PopPlusPolicy(first_look=2)
