"""Tests of population based training in virtual time: on curves from a function, and refused on recorded ones."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import pytest

from hopyard.errors import InvalidInput
from hopyard.space import Space
from hopyard.traces import Trace
from hopyard_simulator import Costs, CurveWorkload, Faults, Result, TraceWorkload, simulate

SPACE = Space.from_dict({"lr": {"loguniform": [1e-4, 1.0]}, "batch": {"choice": [16, 32, 64]}}).constrained(
    ["lr * batch <= 32"]
)
MEMBERS = [SPACE.sample(random.Random(number)) for number in range(40)]


def curve(given: Mapping[str, Any], position: int) -> float:
    """Return the value of a job; the best learning rate decreases with the position."""
    assert SPACE.contains(given)
    return -abs(math.log10(given["lr"] / (0.3 * 0.9**position)))


def searched(slots: int, members: int = 20, max_position: int = 30, **more: Any) -> Result:
    workload = CurveWorkload(curve, MEMBERS[:members], max_position=max_position)
    parameters = {"population": 10, "interval": 2, "frozen": ["batch"]}
    return simulate(workload, "pbt", slots=slots, space=SPACE, parameters=parameters, details=True, **more)


def test_every_member_or_a_copy_of_another_is_complete_in_the_end() -> None:
    result = searched(4)
    assert result.reason == "all jobs ended"
    assert len(result.jobs_at_R) == 20
    assert result.jobs_started - result.jobs_terminated == 20
    assert result.jobs_terminated > 20, "a member in five is replaced at most of the 14 boundaries"
    assert searched(4) == result


def test_slots_that_would_idle_begin_a_population() -> None:
    # Ten members are enough work for four slots; with twelve slots, two members of the second population start at once.
    for slots, fresh in ((4, 10), (12, 12)):
        runs = searched(slots, max_position=6).runs
        assert runs is not None
        # New members start at 0, copies at a snapshot. The first two units of a population's members take its first round.
        first = [run for run in runs if run.start < 2 * math.ceil(10 / slots)]
        assert len({run.job for run in first}) == fresh


def test_lost_runs_and_costs_change_nothing_in_the_count() -> None:
    result = searched(4, faults=Faults(drop=0.02), costs=Costs(start=0.5, suspend=0.2, snapshot=0.1), seed=3)
    assert result.reason == "all jobs ended"
    assert len(result.jobs_at_R) == 20


def test_recorded_curves_are_refused_with_what_to_do() -> None:
    traces = [Trace(str(n), {"lr": n / 9}, "score", "max", (n / 9,) * 8, (1.0,) * 8) for n in range(1, 6)]
    parameters = {"population": 5, "interval": 2}
    with pytest.raises(InvalidInput, match=r"must know the search space.*CurveWorkload.*space="):
        simulate(TraceWorkload(traces), "pbt", slots=1, parameters=parameters)
    space = Space.from_dict({"lr": {"uniform": [0, 1]}})
    with pytest.raises(
        InvalidInput, match=r"no trace has the hyperparameters .*a policy that changes them.*CurveWorkload"
    ):
        simulate(TraceWorkload(traces), "pbt", slots=1, space=space, parameters=parameters)
