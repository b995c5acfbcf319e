"""Tests of the normalization of metric values to the scale of a predictor."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hopyard.predictor import Curve, NotPredictableError, Question
from hopyard_curves.metric_normalization import REACH, Scale
from hopyard_curves.reports import MOST, abscissae, finite, future

pytestmark = pytest.mark.quick


def scale(values: list[float], mode: str = "max", low: float | None = None, high: float | None = None) -> Scale:
    positions = tuple(range(1, len(values) + 1))
    assert mode in ("max", "min")
    question = Question(Curve(positions, tuple(values)), 100, "max" if mode == "max" else "min", low=low, high=high)
    return Scale.of(question, np.array(values))


def ends(found: Scale) -> tuple[float, float]:
    return found.worst, found.best


def test_an_accuracy_is_itself() -> None:
    assert ends(scale([0.1, 0.5, 0.61])) == (0.0, 1.0)


def test_known_ends_are_equation_4() -> None:
    found = scale([-400.0, 100.0], low=-500.0, high=300.0)
    assert ends(found) == (-500.0, 300.0)
    assert found.to_unit([-500.0, -100.0, 300.0]).tolist() == [0.0, 0.5, 1.0]


def test_known_ends_of_a_loss_are_turned_over() -> None:
    found = scale([9.0, 1.0], "min", low=0.0, high=10.0)
    assert found.to_unit([10.0, 2.5, 0.0]).tolist() == [0.0, 0.75, 1.0]
    assert not found.rising


def test_a_loss_ends_at_zero_and_begins_where_it_began() -> None:
    assert ends(scale([2.3, 1.0, 0.5, 0.4], "min")) == (2.3, 0.0)


def test_a_reward_may_get_half_the_way_better_still() -> None:
    assert ends(scale([-200.0, -100.0, 100.0])) == (-200.0, 250.0)


@pytest.mark.parametrize("low", [None, 0.0, 1.0])
def test_a_perplexity_is_seen_in_its_logarithm(low: float | None) -> None:
    found = scale([10000.0, 400.0, 100.0, 90.0], "min", low=low)
    assert found.logarithmic
    assert found.worst == 10000.0
    assert found.best == pytest.approx(low or 90.0 * (90.0 / 10000.0) ** 0.5)
    assert found.to_unit([math.sqrt(found.worst * found.best)]) == pytest.approx([0.5])


@pytest.mark.parametrize("decades", [100, 220, 290])
def test_a_loss_that_nearly_vanishes_has_a_scale(decades: int) -> None:
    found = scale([10.0 ** (-decades * n / 20) for n in range(21)], "min")
    assert found.logarithmic
    assert math.isfinite(found.span)
    assert np.isfinite(found.to_unit([1.0, 10.0**-decades])).all()
    assert 0 < found.best < 10.0**-decades


def test_both_ends_known_are_no_logarithm() -> None:
    assert not scale([10000.0, 400.0, 100.0, 90.0], "min", low=1.0, high=10000.0).logarithmic


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ([0.1, 0.4, 0.5], None, None),
        ([2.3, 1.1, 0.7, 0.9], None, None),
        ([-500.0, 20.0, 300.0], None, None),
        ([5000.0, 200.0, 40.0, 20.0], None, None),
        ([5000.0, 200.0, 40.0, 20.0], 1.0, None),
        ([0.0], None, None),
        ([3.0, 3.0], None, None),
        ([3.0, 4.0], 0.0, 10.0),
    ],
)
@pytest.mark.parametrize("mode", ["max", "min"])
def test_a_metric_turned_over_has_its_scale_turned_over(
    values: list[float], low: float | None, high: float | None, mode: str
) -> None:
    here = scale(values, mode, low, high)
    turned = [-value for value in values]
    other = scale(
        turned, "min" if mode == "max" else "max", None if high is None else -high, None if low is None else -low
    )
    assert ends(other) == (-here.worst, -here.best)
    assert here.logarithmic == other.logarithmic
    assert (here.best > here.worst) == (mode == "max")
    np.testing.assert_array_equal(here.to_unit(values), other.to_unit(turned))


@pytest.mark.parametrize("values", [[2.3, 1.1, 0.7], [9000.0, 40.0, 20.0]])
def test_units_and_back(values: list[float]) -> None:
    found = scale(values, "min")
    np.testing.assert_allclose(found.from_unit(found.to_unit(values)), values, rtol=1e-12)


def test_a_crash_moves_the_scale_little_and_counts_as_a_crash() -> None:
    calm = [2.3 / step for step in range(1, 30)]
    crashed = [*calm[:20], 1e30, *calm[20:]]
    found = scale(crashed, "min")
    assert ends(found) == ends(scale(calm, "min"))
    assert found.observed([1e30]) == [REACH[0]]


def test_a_target_that_a_logarithm_cannot_reach_is_infinitely_far() -> None:
    found = scale([9000.0, 40.0, 20.0], "min")
    assert found.to_unit([0.0, -1.0]).tolist() == [math.inf, math.inf]


@pytest.mark.parametrize(("mode", "beyond", "behind"), [("max", 1.5, -0.5), ("min", -0.5, 1.5)])
def test_what_the_metric_cannot_be_has_no_chance(mode: str, beyond: float, behind: float) -> None:
    found, chances = scale([0.1, 0.5], mode, 0.0, 1.0), np.array([0.2, 0.3])
    assert found.possible(beyond, chances).tolist() == [0.0, 0.0]
    assert found.possible(behind, chances).tolist() == [1.0, 1.0]
    assert found.possible(0.5, chances) is chances
    assert found.clipped([-1.0, 0.5, 2.0]).tolist() == [0.0, 0.5, 1.0]


def test_an_end_that_was_passed_is_none() -> None:
    assert scale([0.1, 1.5], low=0.0, high=1.0).clipped([2.0]) == [1.5]


def test_moments_of_a_logarithmic_scale_are_the_lognormal_ones() -> None:
    found = scale([9000.0, 40.0, 20.0], "min")
    units = np.random.default_rng(1).normal(0.7, 0.05, 400_000)
    metric = found.from_unit(units)
    mean, deviation = found.moments(0.7, 0.05)
    assert mean == pytest.approx(metric.mean(), rel=0.01)
    assert deviation == pytest.approx(metric.std(), rel=0.01)


def test_moments_of_a_linear_scale() -> None:
    mean, deviation = scale([-400.0], low=-500.0, high=300.0).moments([0.5], [0.1])
    assert mean.tolist() == [-100.0]
    assert deviation == pytest.approx([80.0])


def test_the_next_reports_go_on_at_the_spacing_of_the_last_ones() -> None:
    curve = Curve((5, 10, 15), (0.1, math.nan, 0.3))
    assert future(curve, 32) == (20, 25, 30, 32)
    assert future(curve, 15) == ()
    assert future(Curve((7,), (0.1,)), 21) == (14, 21)


def test_no_more_future_positions_than_can_be_looked_at() -> None:
    found = future(Curve((1, 2), (0.1, 0.2)), 10**9)
    assert len(found) <= MOST + 1
    assert found[-1] == 10**9


def test_reports_that_are_not_finite_are_left_out() -> None:
    curve = Curve((5, 10, 15, 20), (0.1, math.nan, math.inf, 0.3))
    found = finite(curve)
    assert found.positions.tolist() == [5, 20]
    assert found.values.tolist() == [0.1, 0.3]
    assert abscissae(curve, found.positions).tolist() == [1.0, 4.0]


def test_abscissae_begin_no_lower_than_one() -> None:
    curve = Curve((1, 11, 21), (0.1, 0.2, 0.3))
    assert abscissae(curve, np.array([1.0, 21.0])).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("values", [(), (math.nan,), (math.inf, -math.inf), (1e200,)])
def test_a_curve_without_a_finite_value_says_what_is_missing(values: tuple[float, ...]) -> None:
    with pytest.raises(NotPredictableError, match="at least one finite value"):
        finite(Curve(tuple(range(1, len(values) + 1)), values))
