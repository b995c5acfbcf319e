"""Tests of the compiled posterior against the formulas in plain Python."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytest

from hopyard_curves.mcmc.families import FAMILIES
from hopyard_curves.mcmc.initial_walkers import fit, started
from hopyard_curves.mcmc.numba_kernels import Floats, abscissae, add, compiled, curves, log_densities
from hopyard_curves.mcmc.posterior import SIZES, posterior, recency
from hopyard_curves.mcmc.samplers import around, stretch
from tests.unit.curves import plain

# The first test that needs a compiled function may have to compile it.
pytestmark = pytest.mark.timeout(300)

X = np.arange(1.0, 31.0)
HORIZON = 200.0
EVERY = list(range(len(FAMILIES)))


def every() -> Floats:
    """Return parameters inside the support: all families at the start values of their fits."""
    return np.array([*(value for one in FAMILIES for value in one.start.values()), 0.05, *[10.0] * len(FAMILIES)])


def rising(seed: int = 1, noise: float = 0.01) -> Floats:
    chance = np.random.default_rng(seed)
    return np.asarray(0.75 - 0.6 * X**-0.7 + noise * chance.standard_normal(X.size))


def agree(thetas: Floats, kept: list[int], x: Floats, y: Floats, horizon: float) -> int:
    """Compare the density of every row; return the number of rows inside the support."""
    found = log_densities(np.ascontiguousarray(thetas), posterior(x, y, horizon, kept))
    inside = 0
    for theta, density in zip(thetas, found, strict=True):
        truth = plain.log_density(theta.tolist(), kept, x.tolist(), y.tolist(), horizon)
        if math.isfinite(truth):
            inside += 1
            assert density == pytest.approx(truth, rel=1e-9, abs=0)
        else:
            assert density == truth
    return inside


def test_the_families_have_the_published_numbers_of_parameters() -> None:
    assert tuple(size for size, _ in plain.FAMILIES) == SIZES
    assert sum(SIZES) == 36


@pytest.mark.parametrize("family", range(len(FAMILIES)), ids=[one.name for one in FAMILIES])
def test_each_family_is_its_formula(family: int) -> None:
    chance = np.random.default_rng(family)
    given = np.array(list(FAMILIES[family].start.values()))
    for _ in range(200):
        p = given * chance.uniform(0.3, 2.0, given.size) * chance.choice([1, 1, 1, -1], given.size)
        found = np.zeros(X.size)
        add(family, p, abscissae(X), 1.0, found)
        truth = [plain.FAMILIES[family][1](x, *p.tolist()) for x in X.tolist()]
        np.testing.assert_allclose(found, truth, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("family", range(len(FAMILIES)), ids=[one.name for one in FAMILIES])
def test_the_density_of_one_family_alone(family: int) -> None:
    chance = np.random.default_rng(100 + family)
    given = np.array([*FAMILIES[family].start.values(), 0.05, 10.0])
    thetas = given * (1 + 0.7 * chance.standard_normal((400, given.size)))
    inside = agree(thetas, [family], X, rising(), HORIZON)
    assert 20 < inside < 400


@pytest.mark.parametrize("spread", [1e-6, 1e-3, 0.02, 0.3])
def test_the_density_of_all_families(spread: float) -> None:
    y = rising()
    about, theta = begun(X, y, HORIZON)
    chance = np.random.default_rng(5)
    thetas = theta * (1 + spread * chance.standard_normal((200, theta.size)))
    inside = agree(thetas, about, X, y, HORIZON)
    assert inside > 0 if spread < 0.1 else inside < 200


def test_the_density_along_a_chain() -> None:
    y = rising()
    found = started(X, y, HORIZON)
    assert found is not None
    about, theta = found
    chance = np.random.default_rng(5)
    thetas = stretch(about, around(theta, 100, chance), 200, 0, 10, chance)
    kept = about.kept.tolist()
    assert agree(thetas[::10], kept, X, y, HORIZON) > 150


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_density_of_few_reports(n: int) -> None:
    x, y = X[:n], rising()[:n]
    thetas = every() * (1 + 0.05 * np.random.default_rng(n).standard_normal((200, every().size)))
    assert agree(thetas, EVERY, x, y, 50.0) > 20


@pytest.mark.parametrize(
    ("at", "value"),
    [(-1, -0.1), (-12, 0.0), (-12, -0.01), (-12, math.nan), (-3, math.nan), (0, 6.0), (0, math.nan), (21, -0.5)],
    ids=["weight", "no-noise", "noise", "noise-nan", "weight-nan", "too-high", "nan", "falling"],
)
def test_outside_the_support(at: int, value: float) -> None:
    theta = every()
    assert agree(theta[None], EVERY, X, rising(), HORIZON) == 1
    theta[at] = value
    assert log_densities(theta[None], posterior(X, rising(), HORIZON, EVERY))[0] == -math.inf
    if not math.isnan(value):
        agree(theta[None], EVERY, X, rising(), HORIZON)


def test_no_weight_at_all_is_outside() -> None:
    theta = every()
    theta[-len(EVERY) :] = 0.0
    assert log_densities(theta[None], posterior(X, rising(), HORIZON, EVERY))[0] == -math.inf


def test_only_ratios_of_weights_count() -> None:
    theta = every()
    other = theta.copy()
    other[-len(EVERY) :] *= 7
    one, two = log_densities(np.stack([theta, other]), posterior(X, rising(), HORIZON, EVERY))
    assert one == pytest.approx(two, rel=1e-12)


def test_recency_weights_rise_from_one_to_nearly_ten() -> None:
    assert recency(1).tolist() == [1.0]
    assert recency(4) == pytest.approx([1.0, 10**0.25, 10**0.5, 10**0.75])


def test_expected_curves_are_the_weighted_sums() -> None:
    theta = every()
    theta[-len(EVERY) :] = np.arange(1, 12)
    ahead = [31.0, 100.0, HORIZON]
    found = curves(theta[None], posterior(X, rising(), HORIZON, EVERY), abscissae(ahead))
    at, truth = 0, np.zeros(3)
    for weight, (size, value) in enumerate(plain.FAMILIES, start=1):
        truth += [weight / 66 * value(x, *theta[at : at + size].tolist()) for x in ahead]
        at += size
    np.testing.assert_allclose(found[0], truth, rtol=1e-12)


def test_walkers_begin_where_the_families_fit_best() -> None:
    y = rising(noise=0.0)
    about, theta = begun(X, y, HORIZON)
    pow3 = [one.name for one in FAMILIES].index("pow3")
    assert pow3 in about
    assert fit(pow3, posterior(X, y, HORIZON, about)) == pytest.approx([0.75, 0.6, 0.7], rel=1e-6)
    assert theta[-len(about) :].tolist() == [10.0] * len(about)
    mean = curves(theta[None], posterior(X, y, HORIZON, about), abscissae(X))[0]
    assert theta[-len(about) - 1] == pytest.approx(np.std(y - mean))


def test_families_that_the_prior_excludes_are_dropped() -> None:
    found = started(X, 0.9 - 0.02 * X, HORIZON)
    if found is not None:
        about, theta = found
        assert about.kept.size < len(FAMILIES)
        assert log_densities(theta[None], about)[0] > -math.inf


def test_an_impossible_curve_has_no_start() -> None:
    assert started(X, -0.01 * X**2, HORIZON) is None


def test_without_a_folder_for_machine_code_each_process_compiles_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    njit, asked = numba.njit, []

    def without_folder(*, cache: bool = False, **options: Any) -> Any:
        asked.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", without_folder)

    @compiled
    def inverse(value: float) -> float:
        return 1 / value

    assert inverse(0.0) == math.inf
    assert asked == [True, False]


def begun(x: Floats, y: Floats, horizon: float) -> tuple[list[int], Floats]:
    found = started(x, y, horizon)
    assert found is not None
    return found[0].kept.tolist(), found[1]
