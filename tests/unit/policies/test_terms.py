"""Tests of the rating of metric values by an experiment's terms."""

from __future__ import annotations

import math

import pytest

from hopyard.policy import ExperimentView

pytestmark = pytest.mark.quick

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_what_is_not_finite_is_rated_worst(value: float) -> None:
    assert [ExperimentView("m", mode, 1).rated(value) for mode in ("max", "min")] == [-INF, -INF]


def test_the_rating_of_a_finite_value_is_larger_where_it_is_better() -> None:
    assert ExperimentView("m", "max", 1).rated(-2.5) == -2.5
    assert ExperimentView("m", "min", 1).rated(-2.5) == 2.5
