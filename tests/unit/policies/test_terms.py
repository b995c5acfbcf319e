"""Tests of the rating of metric values by an experiment's terms."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
from typing_extensions import override

from hopyard.policy import Cluster, ExperimentView, RunEnd
from hopyard.policy.testing import VirtualCluster, VirtualStep
from hopyard_policies.default import DefaultPolicy

pytestmark = pytest.mark.quick

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_is_rated_worst(value: float) -> None:
    assert [ExperimentView("m", mode, 1).rated(value) for mode in ("max", "min")] == [-INF, -INF]


def test_the_rating_of_a_finite_value_is_larger_where_it_is_better() -> None:
    assert ExperimentView("m", "max", 1).rated(-2.5) == -2.5
    assert ExperimentView("m", "min", 1).rated(-2.5) == 2.5


class Rating(DefaultPolicy):
    """Records the rated values of a job at the end of its run."""

    @override
    def on_run_end(self, cluster: Cluster, run: RunEnd) -> None:
        super().on_run_end(cluster, run)
        self.found = cluster.ratings(run.job)


def ratings(values: list[float | None], mode: Literal["max", "min"], **terms: Any) -> dict[int, float]:
    """Return the rated values of a job that reports these values at 1, 2, ...; None is a report without the metric."""

    def step(_: object, position: int) -> VirtualStep:
        value = values[position - 1]
        return VirtualStep({"loss": 1.0} if value is None else {"accuracy": value, "loss": 1.0})

    policy = Rating()
    VirtualCluster(policy, slots=1, jobs=1, max_position=len(values), curve=step, mode=mode, **terms).run()
    return policy.found


@pytest.mark.parametrize(("mode", "sign"), [("max", 1), ("min", -1)])
def test_the_ratings_of_a_job_are_those_of_its_reports_with_the_metric(mode: Literal["max", "min"], sign: int) -> None:
    found = ratings([0.5, None, NAN, -2.0, INF, None], mode)
    assert list(found.items()) == [(1, sign * 0.5), (3, -INF), (4, sign * -2.0), (5, -INF)]


def test_a_job_that_has_not_reported_the_metric_has_no_rating() -> None:
    assert ratings([None, None], "max") == {}
