"""Tests of the rating of metric values by an experiment's terms."""

from __future__ import annotations

import math
import sys
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


REWARD = ExperimentView("reward", "max", 1, low=-500, high=300)
"""The range of LunarLander in the HyperDrive paper (section 6.3)."""


def test_with_a_known_range_a_rating_is_equation_4() -> None:
    found = [REWARD.rated(value) for value in (-500, -100, 0, 200, 300)]
    assert found == [0, 0.5, 0.625, 0.875, 1]


def test_the_worst_value_is_rated_0_and_the_best_1_in_both_modes() -> None:
    error = ExperimentView("error", "min", 1, low=0, high=4)
    assert [error.rated(value) for value in (4, 3, 0)] == [0, 0.25, 1]
    mirror = ExperimentView("cost", "min", 1, low=-300, high=500)
    assert [mirror.rated(-value) for value in (-500, -77.7, 300)] == [REWARD.rated(v) for v in (-500, -77.7, 300)]


def test_values_beyond_the_range_keep_their_order() -> None:
    assert [REWARD.rated(value) for value in (-900, -600, 400, 1100)] == [-0.5, -0.125, 1.125, 2]
    assert [REWARD.rated(value) for value in (NAN, INF, -INF)] == [-INF] * 3


@pytest.mark.parametrize(
    "terms", [{"low": 0.0}, {"high": 4.0}, {"low": -1.5e308, "high": 1.5e308}, {"low": 1, "high": 1}]
)
def test_without_a_range_of_finite_width_nothing_is_normalized(terms: dict[str, Any]) -> None:
    assert ExperimentView("m", "max", 1, **terms).rated(3.0) == 3.0
    assert ExperimentView("m", "min", 1, **terms).rated(3.0) == -3.0


def test_a_rating_that_would_overflow_is_the_largest_number() -> None:
    narrow = ExperimentView("m", "max", 1, low=0, high=1e-300)
    assert [narrow.rated(value) for value in (1e300, -1e300)] == [sys.float_info.max, -sys.float_info.max]


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
