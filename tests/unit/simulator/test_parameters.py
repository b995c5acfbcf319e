"""Tests of the names of parameters of a simulated search, where a policy and an experiment may use the same name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard.policy import Policy
from hopyard_policies.median import MedianPolicy
from hopyard_simulator import CurveWorkload, Result, simulate
from hopyard_simulator.parameters import TERMS, resolve

pytestmark = pytest.mark.quick


def searched(policy: Any, parameters: Mapping[str, Any]) -> Result:
    """Search on one slot, with a job at 0.9 first and one at 0.1 second, of four positions each."""
    workload = CurveWorkload(lambda given, position: given["x"], [{"x": 0.9}, {"x": 0.1}], 4)
    return simulate(workload, policy, slots=1, parameters=parameters)


@pytest.mark.parametrize("policy", ["median", MedianPolicy, lambda grace=0: MedianPolicy(grace=grace)])
def test_a_name_of_policy_and_experiment_is_ambiguous(policy: Any) -> None:
    with pytest.raises(InvalidInput) as found:
        searched(policy, {"grace": 3})
    name = policy if isinstance(policy, str) else policy.__name__
    assert str(found.value) == (
        f"grace is ambiguous: it is a parameter of policy {name} and a term of the experiment; use policy.grace or experiment.grace"
    )


def test_full_names_say_whose_parameter_it_is() -> None:
    rule = {"policy.evaluation_boundary": 1, "least_jobs": 1}
    # The median is 0.9, so the job at 0.1 ends at position 1, or where the policy's grace ends. The experiment's is without effect.
    graces: list[dict[str, float]] = [
        {},
        {"policy.grace": 3},
        {"experiment.grace": 3.0},
        {"policy.grace": 3, "experiment.grace": 2.0},
    ]
    found = [searched("median", {**rule, **one}) for one in graces]
    assert [result.iterations for result in found] == [5, 7, 5, 7]
    assert [result.parameters for result in found] == [
        {"evaluation_boundary": 1, "least_jobs": 1, **one} for one in graces
    ]


def test_each_owner_gets_its_parameters() -> None:
    found = resolve({"predictor.steps": 2, "policy.steps": 3, "grace": 1.0, "eta": 4}, "mine", ["eta", "steps"])
    assert (found.policy, found.terms, found.predictor) == ({"steps": 3, "eta": 4}, {"grace": 1.0}, {"steps": 2})
    assert found.shown() == {"steps": 3, "eta": 4, "grace": 1.0}


def test_the_results_parameters_can_be_given_again() -> None:
    first = searched(
        "median", {"policy.grace": 3, "experiment.kill_threshold": 0.5, "experiment.grace": 2.0, "policy.ahead": 1}
    )
    assert searched("median", first.parameters).parameters == first.parameters
    assert first.parameters == {"policy.grace": 3, "ahead": 1, "kill_threshold": 0.5, "experiment.grace": 2.0}


@pytest.mark.parametrize("name", sorted(TERMS))
def test_every_term_may_have_the_name_of_a_parameter(name: str) -> None:
    def policy(**given: Any) -> Policy:
        raise AssertionError(given)  # It is not created.

    takes = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)]
    setattr(policy, "__signature__", inspect.Signature(takes))  # noqa: B010 - functions have no such attribute for mypy
    with pytest.raises(InvalidInput, match=rf"^{name} is ambiguous: .*; use policy\.{name} or experiment\.{name}$"):
        searched(policy, {name: 1})


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        (
            {"policy.kill_threshold": 1},
            "policy default has no parameter kill_threshold; it has: ahead, barrier, elastic, ",
        ),
        ({"nonsense": 1}, "policy default has no parameter nonsense; it has: ahead, "),
        (
            {"experiment.ahead": 1},
            "an experiment has no term ahead; its terms are: kill_threshold, target_over, low, ",
        ),
        ({"experiment.concurrency": 0}, "concurrency must be at least 1, found 0"),
        ({"ahead": 1, "policy.ahead": 1}, "ahead is given twice: as ahead and as policy.ahead; give it once"),
        ({"experiment.low": 0, "low": 0}, "low is given twice: as experiment.low and as low; give it once"),
        ({"engine.low": 0}, "policy default has no parameter engine.low; it has: "),
    ],
)
def test_wrong_names(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput) as found:
        searched("default", parameters)
    assert str(found.value).startswith(said)
