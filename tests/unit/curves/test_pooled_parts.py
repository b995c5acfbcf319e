"""Tests of the regressions and mixtures of `pooled`, against plain evaluations."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from hopyard.predictor import LEVELS
from hopyard_curves.pooled.mixture import NormalMixtures
from hopyard_curves.pooled.regression import fit

pytestmark = pytest.mark.quick


def test_with_many_runs_the_prior_plays_no_part() -> None:
    chance = np.random.default_rng(0)
    features = chance.normal(size=(4000, 2))
    targets = 0.3 + features @ [1.5, -0.7] + chance.normal(0, 0.1, 4000)
    fitted = fit(np.ones((1, 4000)), features, targets, np.zeros(2), np.array([0.2, 0.2]))
    means, variances = fitted.at(np.array([[1.0, 1.0]]))
    assert means[0] == pytest.approx(1.1, abs=0.01)
    assert fitted.variance[0] == pytest.approx(0.01, rel=0.1)
    assert variances[0] < 1e-4


def test_with_one_run_the_prior_decides() -> None:
    fitted = fit(np.ones((1, 1)), np.array([[0.5]]), np.array([0.2]), np.array([-0.3]), np.array([0.1]))
    means, variances = fitted.at(np.array([[0.7]]))
    assert means[0] == pytest.approx(0.2 - 0.3 * 0.2)
    assert variances[0] == pytest.approx((0.1 * 0.2) ** 2, rel=0.01)


def test_a_run_of_weight_zero_plays_no_part() -> None:
    chance = np.random.default_rng(1)
    features, targets = chance.normal(size=(9, 1)), chance.normal(size=9)
    weights = np.ones((2, 9))
    weights[:, -1] = 0
    far = targets.copy()
    far[-1] = 50.0
    prior, spreads = np.zeros(1), np.ones(1)
    one, other = (fit(weights, features, given, prior, spreads).at(features[:1]) for given in (targets, far))
    alone = fit(np.ones((2, 8)), features[:-1], targets[:-1], prior, spreads).at(features[:1])
    assert one[0] == pytest.approx(other[0])
    assert one[0] == pytest.approx(alone[0])
    assert one[1] == pytest.approx(alone[1])


def test_a_residual_is_that_of_a_fit_without_its_run() -> None:
    chance = np.random.default_rng(2)
    features, targets = chance.normal(size=(12, 1)), chance.normal(size=12)
    loose, flat = np.array([1e4]), np.zeros(1)
    whole = fit(np.ones((1, 12)), features, targets, flat, loose)
    kept = np.arange(12) != 4
    without = fit(np.ones((1, 11)), features[kept], targets[kept], flat, loose)
    assert whole.residuals[0, 4] == pytest.approx(targets[4] - without.at(features[4:5])[0][0], rel=1e-6)


@pytest.mark.parametrize("count", [1, 3, 30, 31, 200])
def test_quantiles_are_those_of_the_mixture(count: int) -> None:
    chance = np.random.default_rng(count)
    weights = chance.dirichlet(np.ones(count))
    mixture = NormalMixtures(chance.normal(size=(1, count)), weights[None], np.array([[0.3]]))
    for level, point in zip(LEVELS, mixture.quantiles(0, np.array(LEVELS)), strict=True):
        below = sum(
            weight * NormalDist(centre, 0.3).cdf(point)
            for weight, centre in zip(weights, mixture.centres[0], strict=True)
        )
        assert below == pytest.approx(level, abs=0.012)
        assert mixture.above(float(point))[0] == pytest.approx(1 - below, abs=1e-6)


def test_moments_and_score_of_a_mixture() -> None:
    mixture = NormalMixtures(np.array([[0.0, 2.0, 3.0]]), np.array([[0.5, 0.25, 0.25]]), np.array([[0.1]]))
    assert mixture.mean[0] == pytest.approx(1.25)
    assert mixture.variance[0] == pytest.approx(0.5 * 1.25**2 + 0.25 * 0.75**2 + 0.25 * 1.75**2 + 0.01)
    apart = sum(
        left * right * abs(a - b)
        for left, a in zip(mixture.weights[0], mixture.centres[0], strict=True)
        for right, b in zip(mixture.weights[0], mixture.centres[0], strict=True)
    )
    wanted = 0.5 * 1.0 + 0.25 * 1.0 + 0.25 * 2.0 - apart / 2
    assert mixture.crps(np.array([1.0]))[0] == pytest.approx(wanted)
