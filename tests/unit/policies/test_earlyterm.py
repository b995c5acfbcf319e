"""Tests of predictive early termination, on small simulated searches."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from typing_extensions import override

from hopyard.policy import Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard.policy.vocabulary import Ask, Predict
from hopyard_policies.earlyterm import EarlyTermPolicy
from hopyard_simulator import Costs, Result, TraceWorkload, simulate
from tests.unit.policies.test_pop import Told, foreseen, minimised, runs, trace

pytestmark = pytest.mark.quick


def search(*traces: Any, **options: Any) -> Result:
    parameters = {"evaluation_boundary": 3, **options.pop("parameters", {})}
    return simulate(
        TraceWorkload(traces),
        EarlyTermPolicy,
        slots=options.pop("slots", 1),
        parameters=parameters,
        predictor=Told(),
        details=True,
        **options,
    )


def test_who_will_hardly_be_the_best_ends() -> None:
    # Job 1 is the best. A prediction for job 2 is requested at 13.0, and job 2 ends when it has saved; 0.05 is not below 0.05.
    result = search(trace(1, 0.5, 0.9), trace(2, 0.049), trace(3, 0.05))
    assert runs(result) == [("1", 0.0, 10.0), ("2", 10.0, 13.0), ("3", 13.0, 23.0)]
    assert result.jobs_terminated == 1


def test_the_best_is_not_asked_about() -> None:
    result = search(trace(1, 0.0, 0.9), trace(2, 0.0, 0.95))
    assert result.jobs_terminated == 0


def test_a_prediction_takes_its_time_and_holds_nobody_up() -> None:
    result = search(trace(1, 0.5, 0.9), trace(2, 0.0), costs=Costs(prediction=1.5))
    assert runs(result)[1] == ("2", 10.0, 15.0)


def test_a_prediction_may_take_longer_than_from_boundary_to_boundary() -> None:
    # A prediction for job 2 is requested at 12.0; it passes the boundary at 14.0 before the answer at 14.5 ends it.
    costs, parameters = Costs(prediction=2.5), {"evaluation_boundary": 2}
    result = search(trace(1, 0.5, 0.9), trace(2, 0.0), costs=costs, parameters=parameters)
    assert runs(result)[1] == ("2", 10.0, 15.0)


def test_a_prediction_that_fails_ends_nothing() -> None:
    assert search(trace(1, 0.5, 0.9), trace(2, 0.0, silent=1)).jobs_terminated == 0


def test_the_papers_boundary_is_beyond_short_jobs() -> None:
    result = search(trace(1, 0.0, 0.9), trace(2, 0.0), parameters={"evaluation_boundary": 30})
    assert result.jobs_terminated == 0


def test_minimising_the_negative_is_the_same_search() -> None:
    traces = [trace(job, p, value) for job, p, value in ((1, 0.5, 0.2), (2, 0.0, 0.1), (3, 0.01, 0.3), (4, 1.0, 0.4))]
    assert search(*traces).runs == search(*map(minimised, traces)).runs


@pytest.mark.parametrize(("name", "value"), [("evaluation_boundary", 0), ("evaluation_boundary", True), ("delta", 1.1)])
def test_parameters_out_of_range(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        EarlyTermPolicy(**{name: value})  # type: ignore[arg-type]


@pytest.mark.quick(merge=IN_PROCESSES)
class TestConformance(PolicyConformance):
    symmetric: ClassVar = False  # Targets of its predictions can be negative; a test above compares its searches.

    max_position: ClassVar = 6

    @override
    def make_policy(self) -> Policy:
        return EarlyTermPolicy(evaluation_boundary=2)

    @override
    def respond(self, question: Predict | Ask) -> object:
        return foreseen(question)
