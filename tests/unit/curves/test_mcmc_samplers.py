"""Tests of two samplers of the same posterior: the built-in one and the package emcee."""

from __future__ import annotations

import numpy as np
import pytest

from hopyard_curves.mcmc.initial_walkers import started
from hopyard_curves.mcmc.numba_kernels import Floats, Posterior, abscissae, curves, log_densities
from hopyard_curves.mcmc.posterior_predictive import Samples, chances, moments
from hopyard_curves.mcmc.samplers import NEARBY, SAMPLERS, around
from hopyard_curves.metric_normalization import Scale

pytestmark = pytest.mark.timeout(300)

STEPS, BURN_IN, THIN = 260, 200, 5
SEEDS = 8


@pytest.fixture(scope="module")
def begun() -> tuple[Posterior, Floats]:
    x = np.arange(1.0, 16.0)
    noise = 0.01 * np.random.default_rng(3).standard_normal(x.size)
    found = started(x, 0.7 - 0.55 * x**-0.6 + noise, 60.0)
    assert found is not None
    return found


def figures(name: str, begun: tuple[Posterior, Floats], seed: int) -> list[float]:
    """Return what the samples of a seed predict for the last position, and statistics of their density."""
    about, theta = begun
    start = around(theta, 100, np.random.default_rng(7))
    thetas = SAMPLERS[name](about, start, STEPS, BURN_IN, THIN, np.random.default_rng(seed))
    samples = Samples(curves(thetas, about, abscissae([20.0, 60.0])), thetas[:, about.offsets[-1]])
    mean, deviation = moments(samples, Scale(0.0, 1.0))
    density = log_densities(thetas, about)
    return [
        *mean.tolist(),
        *np.log(deviation).tolist(),
        *chances(samples, 0.68).tolist(),
        float(np.median(samples.sigmas)),
        float(np.median(density)),
        float(np.quantile(density, 0.1)),
    ]


def test_both_ensembles_agree_within_the_noise_of_their_seeds(begun: tuple[Posterior, Floats]) -> None:
    ours, theirs = (np.array([figures(name, begun, seed) for seed in range(SEEDS)]) for name in ("stretch", "emcee"))
    noise = np.sqrt((ours.var(axis=0, ddof=1) + theirs.var(axis=0, ddof=1)) / SEEDS)
    distance = np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / noise
    assert distance.max() < 4, distance.round(1).tolist()
    # The comparison is meaningful: the compared values are known to a few percent.
    assert (noise[[0, 1]] < 0.01).all()
    assert (noise[[4, 5]] < 0.03).all()


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_kept_walkers_are_those_of_every_so_many_th_step(begun: tuple[Posterior, Floats], name: str) -> None:
    about, theta = begun
    start = around(theta, 100, np.random.default_rng(7))
    every = SAMPLERS[name](about, start, 12, 0, 1, np.random.default_rng(1)).reshape(12, *start.shape)
    kept = SAMPLERS[name](about, start, 12, 3, 4, np.random.default_rng(1)).reshape(-1, *start.shape)
    np.testing.assert_array_equal(kept, every[[6, 10]])


@pytest.mark.parametrize("name", list(SAMPLERS))
def test_a_seed_walks_the_same_way_twice_and_another_one_differently(
    begun: tuple[Posterior, Floats], name: str
) -> None:
    about, theta = begun
    start = around(theta, 100, np.random.default_rng(7))
    before = start.copy()
    one, two, other = (
        SAMPLERS[name](about, start, 10, 0, 1, np.random.default_rng(seed)) for seed in (2**62, 2**62, 1)
    )
    np.testing.assert_array_equal(start, before)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_walkers_outside_the_support_stay_unless_a_partner_draws_them_in(begun: tuple[Posterior, Floats]) -> None:
    about, theta = begun
    start = around(theta, 100, np.random.default_rng(7))
    start[:, about.offsets[-1]] = -np.abs(start[:, about.offsets[-1]])
    thetas = SAMPLERS["stretch"](about, start, 5, 0, 1, np.random.default_rng(1))
    np.testing.assert_array_equal(thetas[-start.shape[0] :], start)


def test_walkers_begin_nearby_and_there_are_at_least_twice_as_many_as_dimensions() -> None:
    theta = np.arange(10.0)
    start = around(theta, 3, np.random.default_rng(1))
    assert start.shape == (20, 10)
    assert np.abs(start - theta).max() < 6 * NEARBY
    assert around(theta, 30, np.random.default_rng(1)).shape == (30, 10)
