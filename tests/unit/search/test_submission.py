"""The experiment that a search creates."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hopyard import Trial
from hopyard.errors import InvalidInput
from hopyard.search.submission import search_submission
from hopyard.space import Choice, Space, Uniform
from hopyard.spec import SpecError, load_spec

pytestmark = pytest.mark.quick


def objective(trial: Trial) -> float:
    return float(trial["lr"])


def submission(space: Any = None, **more: Any) -> Any:
    given: dict[str, Any] = {
        "metric": "loss",
        "mode": "min",
        "jobs": 4,
        "max_iterations": None,
        "max_time": None,
        "slots": None,
        "folder": None,
        "fields": {},
    }
    return search_submission(objective, space or {"lr": {"uniform": [0.0, 1.0]}}, **{**given, **more})


def test_arguments_become_fields() -> None:
    found = submission(
        metric={"name": "a{b}", "mode": "max", "target": 0.9},
        mode=None,
        max_iterations=9,
        max_time="15m",
        slots=2,
        fields={"policy": "asha", "seed": 7, "resources": {"per_job": {"cpus": 2}}, "stop": {"max_failures": 0}},
    )
    spec = load_spec(found.text, "sent")
    assert spec == found.spec
    module = "tests.unit.search.test_submission"
    assert spec.command == ("python", "-m", "hopyard.script.objective", module, "objective", "a{{b}}")
    assert (spec.name, spec.metric.target, spec.policy.name, spec.seed) == ("objective", 0.9, "asha", 7)
    assert (spec.stop.jobs, spec.stop.max_iterations, spec.stop.max_time, spec.stop.max_failures) == (4, 9, 900.0, 0)
    assert (spec.resources.slots, spec.resources.per_job.cpus) == (2, 2)


def test_a_space_may_be_an_object() -> None:
    parameters = {"lr": Uniform(0.0, 1.0), "size": Choice((1, 2))}
    spaces = [parameters, Space(parameters), Space(parameters).constrained(["lr * size < 1"])]
    found = [submission(space).spec for space in spaces]
    assert [one.space.to_dict() for one in found] == [Space(parameters).to_dict()] * 3
    assert [one.constraints for one in found] == [(), (), ("lr * size < 1",)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"mode": None},
            "mode is missing for the metric loss; allowed: mode='max' (larger values are better) or mode='min'",
        ),
        ({"metric": {"name": "loss", "mode": "max"}}, "mode is 'min' and metric has the mode 'max'; give one of them"),
        ({"fields": {"command": ["x"]}}, "found command, which the function replaces"),
        ({"fields": {"stop": {"jobs": 3}}}, "jobs is given twice, as an argument and in stop; give one of them"),
        ({"fields": {"resources": 3}}, "resources needs a mapping, found 3"),
    ],
)
def test_wrong_arguments_are_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        submission(**more)


def test_all_mistakes_of_the_specification_are_listed() -> None:
    with pytest.raises(SpecError) as raised:
        submission({"lr": {"uniform": [1.0, 0.0]}}, jobs=None, fields={"polcy": "asha"})
    assert "polcy" in str(raised.value)
    assert "space.lr" in str(raised.value)
