"""Tests of the predictor `mcmc`."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hopyard._common.plugins import PREDICTORS, load_plugin
from hopyard.errors import Unsupported
from hopyard.predictor import (
    LEVELS,
    Curve,
    NotPredictableError,
    Prediction,
    Predictor,
    PredictorParameterError,
    Question,
)
from hopyard_curves.mcmc import initial_walkers
from hopyard_curves.mcmc.posterior_predictive import Samples, chances, last, moments
from hopyard_curves.mcmc.predictor import McmcPredictor
from hopyard_curves.metric_normalization import Scale

pytestmark = pytest.mark.timeout(300)


def quick(**parameters: Any) -> McmcPredictor:
    return McmcPredictor(**{"walkers": 100, "steps": 40, "burn_in": 20, "thin": 5} | parameters)


def rising(n: int, noise: float = 0.005, horizon: int = 40, **rest: Any) -> Question:
    x = np.arange(1.0, n + 1)
    values = 0.8 - 0.6 * x**-0.8 + noise * np.random.default_rng(1).standard_normal(n)
    return Question(Curve(tuple(range(1, n + 1)), tuple(values.tolist())), horizon, **rest)


def whole(found: Prediction, question: Question) -> None:
    """Assert that an answer has valid lengths and ranges."""
    m = len(found.positions)
    assert found.positions[-1] == question.horizon
    assert len(found.mean) == len(found.deviation) == m
    assert len(found.reaches) == (0 if question.target is None else m)
    assert len(found.final) == len(LEVELS)
    assert np.isfinite([*found.mean, *found.deviation, *found.reaches, *found.final]).all()
    assert min(found.deviation) >= 0
    assert all(0 <= chance <= 1 for chance in found.reaches)
    assert (np.diff(found.final) >= 0).all()


def test_it_is_found_by_its_name() -> None:
    assert load_plugin(PREDICTORS, "mcmc", Predictor) is McmcPredictor


def test_a_calm_curve_goes_on() -> None:
    question = rising(20, target=0.7)
    found = quick().predict(question)
    whole(found, question)
    assert found.positions == tuple(range(21, 41))
    assert found.mean[-1] == pytest.approx(0.8 - 0.6 * 40**-0.8, abs=0.03)
    assert found.reaches[-1] > 0.95
    assert quick().predict(replace(question, target=0.9)).reaches[-1] < 0.05


def test_the_same_question_has_the_same_answer_and_another_seed_another() -> None:
    question = rising(10, target=0.7, seed=2**63 - 1)
    assert quick().predict(question) == quick().predict(question)
    assert quick().predict(question) != quick().predict(replace(question, seed=0))


def test_emcee_may_walk_instead() -> None:
    question = rising(10, target=0.7)
    predictor = quick(sampler="emcee")
    found = predictor.predict(question)
    whole(found, question)
    assert found == predictor.predict(question)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_reports_are_enough(n: int) -> None:
    question = rising(n, target=0.7)
    whole(quick().predict(question), question)


def test_values_whose_squares_overflow_are_ignored() -> None:
    huge = Samples(np.array([[0.5], [0.7], [1e200], [-1e300], [math.nan], [math.inf]]), np.full(6, 0.1))
    question = rising(5)
    mean, deviation = moments(huge, Scale.of(question, np.array(question.curve.values)))
    plain = Samples(huge.curves[:2], huge.sigmas[:2])
    assert (mean, deviation) == moments(plain, Scale.of(question, np.array(question.curve.values)))
    assert huge.readable()
    assert not Samples(huge.curves[2:], huge.sigmas[2:]).readable()
    assert chances(huge, 0.6) == chances(plain, 0.6)
    assert (last(huge) == last(plain)).all()


@pytest.mark.parametrize(
    "values",
    [
        [0.1] * 12,
        [0.0] * 12,
        [1.0] * 12,
        [0.5, math.nan, 0.6, math.inf, -math.inf, 0.65, math.nan],
        [0.2, 0.4, 0.5, 0.55, 0.6, 0.1, 0.1, 0.1, 0.1],
        [0.3, 0.4, 0.45, 0.44, 0.45, 0.44, 0.7, 0.71, 0.72],
        [0.3, 0.4, 0.02, 0.45, 0.5, 0.01, 0.55],
        [-120.0, -300.0, -80.0, 20.0, -50.0, 150.0, 180.0],
        [5e6, 3e5, 2e30, 1e5, 9e4],
        [-1e-9, -2e-9, -3e-9, -1e-8],
        [0.9, 0.8, 0.7, 0.6, 0.5, 0.4],
    ],
)
@pytest.mark.parametrize("mode", ["max", "min"])
def test_any_curve_has_an_answer(values: list[float], mode: Any) -> None:
    curve = Curve(tuple(range(3, 3 * len(values) + 1, 3)), tuple(values))
    question = Question(curve, 100, mode, target=0.5)
    whole(quick().predict(question), question)


def test_without_a_finite_value_there_is_no_answer() -> None:
    with pytest.raises(NotPredictableError, match="none of them finite"):
        quick().predict(Question(Curve((1, 2), (math.nan, math.inf)), 10))


def test_at_the_horizon_nothing_is_left_to_predict() -> None:
    assert quick().predict(rising(5, horizon=5, target=0.5)) == Prediction((), (), ())


def test_smaller_is_better_is_the_mirror_of_larger_is_better() -> None:
    question = rising(10, target=0.7)
    mirrored = Curve(question.curve.positions, tuple(-value for value in question.curve.values))
    here = quick().predict(question)
    there = quick().predict(replace(question, curve=mirrored, mode="min", target=-0.7))
    assert there.mean == tuple(-value for value in here.mean)
    assert there.deviation == here.deviation
    assert there.reaches == here.reaches
    assert there.final == tuple(-value for value in here.final[::-1])


def test_another_unit_of_the_metric_is_the_same_question() -> None:
    question = rising(10, target=0.7, low=0.0, high=1.0)
    # Powers of two, so that no bit is lost.
    rewards = Curve(question.curve.positions, tuple(512 * value for value in question.curve.values))
    here = quick().predict(question)
    there = quick().predict(replace(question, curve=rewards, target=512 * 0.7, low=0.0, high=512.0))
    assert there.reaches == here.reaches
    np.testing.assert_allclose(there.mean, 512 * np.array(here.mean), rtol=1e-12)
    np.testing.assert_allclose(there.deviation, 512 * np.array(here.deviation), rtol=1e-12)
    np.testing.assert_allclose(there.final, 512 * np.array(here.final), rtol=1e-12)


def test_positions_are_counted_in_reports() -> None:
    question = rising(10, target=0.7)
    steps = replace(question, curve=replace(question.curve, positions=tuple(range(500, 5001, 500))), horizon=20_000)
    here, there = quick().predict(question), quick().predict(steps)
    assert there.positions == tuple(500 * position for position in here.positions)
    assert there == replace(here, positions=there.positions)


def test_what_the_metric_cannot_be_is_not_predicted() -> None:
    question = Question(Curve((1, 2, 3, 4), (0.9, 0.95, 0.97, 0.985)), 30, low=0.0, high=1.0, target=1.01)
    found = quick().predict(question)
    assert max(*found.mean, *found.final) <= 1.0
    assert set(found.reaches) == {0.0}


def test_a_curve_that_no_family_fits_is_widely_expected_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_walkers, "started", lambda *_: None)
    question = rising(10, target=0.7, low=0.0, high=1.0)
    found = quick().predict(question)
    whole(found, question)
    level = float(np.mean(question.curve.values[-5:]))
    assert found.mean == pytest.approx([level] * 30)
    assert 0.3 < found.reaches[-1] < 0.7
    assert found.final[95] - found.final[5] > 0.5


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"walkers": 1}, "walkers is a whole number >= 2, found 1"),
        ({"steps": 0}, "steps is a whole number >= 1"),
        ({"steps": 700.0}, "found 700.0"),
        ({"thin": True}, "found True"),
        ({"burn_in": -1}, "burn_in is a whole number >= 0"),
        ({"steps": 500, "burn_in": 500}, "steps - burn_in must be >= thin"),
        ({"sampler": "gibbs"}, "sampler is stretch or emcee, found 'gibbs'"),
        ({"walker": 100}, "it takes: burn_in, sampler, steps, thin, walkers"),
    ],
)
def test_a_parameter_that_cannot_be_used_is_refused(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(PredictorParameterError, match=said.replace(".", r"\.")):
        McmcPredictor(**parameters)


@pytest.mark.parametrize(
    ("missing", "sampler", "extra"),
    [("numba", "stretch", "curves"), ("scipy", "stretch", "curves"), ("emcee", "emcee", "emcee")],
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, missing: str, sampler: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(Unsupported, match=rf"pip install .*\[{extra}\]'"):
        McmcPredictor(sampler=sampler)


def test_what_samples_say() -> None:
    """Check against sums over the samples in plain Python, without values that are not finite."""
    curves = np.array([[0.5, 0.6], [0.4, 0.7], [math.nan, 0.65], [0.3, 0.2], [0.9, math.inf]])
    sigmas = np.array([0.1, 0.05, 0.2, -0.1, 0.3])
    samples, target = Samples(curves, sigmas), 0.55
    mean, deviation = moments(samples, Scale(0.0, 1.0))
    assert mean == pytest.approx([(0.5 + 0.4 + 0.3 + 0.9) / 4, (0.6 + 0.7 + 0.65 + 0.2) / 4])
    assert deviation == pytest.approx([np.std([0.5, 0.4, 0.3, 0.9]), np.std([0.6, 0.7, 0.65, 0.2])])
    expected = [
        [0.5 * math.erfc((target - mu) / (sigma * math.sqrt(2))) for mu, sigma in column]
        for column in ([(0.5, 0.1), (0.4, 0.05), (0.9, 0.3)], [(0.6, 0.1), (0.7, 0.05), (0.65, 0.2)])
    ]
    assert chances(samples, target) == pytest.approx([float(np.mean(column)) for column in expected])
    assert samples.readable()


def test_quantiles_of_the_mixture_have_their_levels() -> None:
    chance = np.random.default_rng(4)
    curves, sigmas = chance.gamma(2.0, 0.3, (500, 1)), chance.uniform(0.01, 0.2, 500)
    quantiles = last(Samples(curves, sigmas))
    levels = [float(1 - chances(Samples(curves, sigmas), quantile)[0]) for quantile in quantiles]
    np.testing.assert_allclose(levels, LEVELS, atol=5e-4)


def test_quantiles_of_a_single_normal_distribution_are_its_own() -> None:
    quantiles = last(Samples(np.full((7, 1), 0.5), np.full(7, 0.1)))
    levels = [0.5 * math.erfc((0.5 - quantile) / (0.1 * math.sqrt(2))) for quantile in quantiles.tolist()]
    np.testing.assert_allclose(levels, LEVELS, rtol=1e-9)
