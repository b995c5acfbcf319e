"""Tests of the kill threshold of `pop` and `pop_plus`, on curves judged by hand."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
from typing_extensions import override

from hopyard.policy import Cluster, RunEnd
from hopyard.policy.testing import VirtualCluster, VirtualStep
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.pop.kill_threshold import not_learning

pytestmark = pytest.mark.quick

A, B = 0.3, 0.1  # above and below the threshold 0.2


class Judging(DefaultPolicy):
    """Judges each job at the end of its run."""

    def __init__(self, crash_after: int) -> None:
        super().__init__()
        self.crash_after = crash_after
        self.found: list[bool] = []

    @override
    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        super().on_run_end(cluster, run)
        self.found.append(not_learning(cluster, run.job, self.crash_after))


def judged(values: list[float | None], crash_after: int, **terms: Any) -> bool:
    """Return the judgement of a job that reported these values at 1, 2, ...; None is a report without the metric."""

    def step(_: object, position: int) -> VirtualStep:
        value = values[position - 1]
        return VirtualStep({"loss": 1.0} if value is None else {"accuracy": value, "loss": 1.0}, seconds=1)

    policy, known = Judging(crash_after), {"kill_threshold": 0.2, **terms}
    VirtualCluster(policy, slots=1, jobs=1, max_position=len(values), curve=step, **known).run()
    (found,) = policy.found
    return found


@pytest.mark.parametrize(
    ("values", "crash_after", "expected"),
    [
        ([B], 3, True),  # it was never better
        ([0.2, 0.2], 3, True),  # a value at the threshold is not better
        ([A], 1, False),
        ([A, B], 1, False),  # a single low value ends no job
        ([A, B, B], 1, True),
        ([A, B, B, B], 3, False),  # from 2 to 4
        ([A, B, B, B, B], 3, True),  # from 2 to 5
        ([A, B, B, B, B, A], 3, False),  # it has recovered
        ([A, B, B, B, B, A, B, B, B], 3, False),  # the distance begins anew: from 7 to 9
        ([A, B, B, B, B, A, B, B, B, B], 3, True),
        ([B, B, B, B, A, B, B, B], 3, False),  # low values before the first better one do not count
        ([A, math.nan, math.inf, -math.inf, B], 3, True),  # values that are not finite are low
        ([math.inf], 3, True),
        ([A, B, None, None, None], 3, False),  # reports without the metric are ignored: from 2 to 2
        ([A, B, None, None, B], 3, True),
        ([None, None], 1, False),  # nothing is known
    ],
)
def test_by_hand(values: list[float | None], crash_after: int, expected: bool) -> None:
    assert judged(values, crash_after) is expected


@pytest.mark.parametrize("values", [[B, B, B], [A, B, B, B], [A, B]])
def test_a_minimized_metric_is_the_same(values: list[float | None]) -> None:
    mode: Literal["min"] = "min"
    negated: list[float | None] = [-value for value in values if value is not None]
    assert judged(negated, 2, mode=mode, kill_threshold=-0.2) is judged(values, 2)


def test_without_a_threshold_every_job_learns() -> None:
    assert judged([B, B, B], 1, kill_threshold=None) is False
