from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from hopyard.predictor import Curve, NotPredictableError, Prediction, Question
from hopyard_curves.grid import GridPredictor, Mixture, extrapolate
from hopyard_curves.grid import posterior as grid
from hopyard_curves.grid.normal import distribution, quick_distribution
from hopyard_curves.grid.shapes import ODDS, shapes

pytestmark = pytest.mark.quick

Floats = NDArray[np.float64]


def ask(values: list[float], horizon: int = 60, **more: object) -> Prediction:
    question = Question(Curve(tuple(range(1, len(values) + 1)), tuple(values)), horizon, target=0.7, low=0.0, high=1.0)
    return GridPredictor().predict(replace(question, **more))  # type: ignore[arg-type]


def rising(count: int, end: float = 0.8, noise: float = 0.0, seed: int = 0) -> list[float]:
    at = np.arange(1, count + 1)
    curve = end - 0.6 * at**-0.7 + noise * np.random.default_rng(seed).normal(size=count)
    return [float(value) for value in curve]


# ------------------------------------------------------------------------------------------------------- the exact parts


def test_the_normal_distribution() -> None:
    deviates = np.linspace(-9, 9, 181)
    exact = np.array([NormalDist().cdf(one) for one in deviates])
    assert np.abs(distribution(deviates) - exact).max() < 2e-7
    assert np.abs(quick_distribution(deviates.astype(np.float32)) - exact).max() < 2e-4
    far = distribution(np.array([-math.inf, -30.0, 30.0, math.inf]))
    assert far.tolist() == [far[0], far[1], 1.0, 1.0]
    assert 0 <= far[0] <= far[1] < 1e-150
    assert far[1] > 0
    assert quick_distribution(np.array([-np.inf, np.inf], dtype=np.float32)) == pytest.approx([0, 1], abs=1e-6)


def test_shapes_rise_from_0_to_1() -> None:
    found = shapes(np.arange(1.0, 201.0), 200.0)
    assert found.shape == (len(ODDS), 200)
    assert found[:, 0] == pytest.approx(0, abs=1e-12)
    assert found[:, -1] == pytest.approx(1)
    assert (np.diff(found) > 0).all()
    assert ODDS.sum() == pytest.approx(1)


def truncate(mean: Floats, covariance: Floats, direction: Floats, bound: float) -> tuple[float, Floats, Floats]:
    """Return probability, mean and covariance of a normal vector, given a bound of its component in a direction, by sums."""
    centre, spread = float(direction @ mean), math.sqrt(direction @ covariance @ direction)
    off = (centre - bound) / spread
    width = 40 / max(1.0, off) if off > 0 else 12.0 - off
    along = np.linspace(bound - width * spread, bound, 8001)
    log = -0.5 * ((along - centre) / spread) ** 2
    mass = np.exp(log - log.max())
    chance = math.exp(log.max()) * float(np.trapezoid(mass, along)) / spread / math.sqrt(2 * math.pi)
    mass[[0, -1]] /= 2
    mass /= mass.sum()
    middle = float(mass @ along)
    variance = float(mass @ (along - middle) ** 2)
    gain = covariance @ direction / spread**2
    return (
        chance,
        mean + gain * (middle - centre),
        covariance + np.outer(gain, gain) * (variance - spread**2),
    )


def dense(x: Floats, y: Floats, future: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the weights, means and variances of all components at the horizon, from the joint normal distribution."""
    count, horizon = len(x), float(future[-1])
    everywhere = np.log(np.append(x, horizon))
    weights, means, variances = [], [], []
    for wander, wander_odds in grid.WANDERS:
        for row, odds in zip(shapes(np.append(x, horizon), horizon), ODDS, strict=True):
            for noise in grid.NOISES:
                for scale, rise_odds in grid.RISES:
                    # (level, rise, y_1 .. y_n, f): linear in independent normals.
                    start = np.array([grid.LEVEL[0], grid.RISE * scale])
                    prior = np.diag([grid.LEVEL[1] ** 2, scale**2])
                    rows = np.stack((np.ones(count + 1), row), axis=1)
                    spread = (noise * wander) ** 2 * np.minimum.outer(everywhere, everywhere)
                    spread[:count, :count] += noise**2 * np.diag((x / x[-1]) ** -grid.FALL)
                    # The expected wander at the end, added to the line.
                    pull = np.linalg.solve(spread[:count, :count], spread[:count, count])
                    end = np.append(rows[count] - pull @ rows[:count], 0.0)
                    joint = np.block([[prior, prior @ rows.T], [rows @ prior, rows @ prior @ rows.T + spread]])
                    mean = np.concatenate((start, rows @ start))
                    seen, wanted = slice(2, 2 + count), [0, 1, 2 + count]
                    left = y - mean[seen]
                    gain = np.linalg.solve(joint[seen, seen], joint[seen][:, wanted]).T
                    after = mean[wanted] + gain @ left
                    known = joint[np.ix_(wanted, wanted)] - gain @ joint[seen][:, wanted]
                    evidence = -0.5 * (
                        left @ np.linalg.solve(joint[seen, seen], left) + np.linalg.slogdet(joint[seen, seen])[1]
                    )
                    limits = 0.0
                    for direction, bound in ((np.array([0.0, -1.0, 0.0]), 0.0), (end, 1.0 - float(pull @ y))):
                        chance, after, known = truncate(after, known, direction, bound)
                        limits += math.log(max(chance, 1e-300))
                    weights.append(grid.TEMPER * (evidence + limits) + math.log(wander_odds * odds * rise_odds))
                    means.append(after[2])
                    variances.append(known[2, 2])
    weight = np.exp(np.array(weights) - max(weights))
    return weight / weight.sum(), np.array(means), np.array(variances)


@pytest.mark.merge
@pytest.mark.parametrize("y", [[0.1, 0.3, 0.35, 0.42], [0.5], [0.9, 0.2, 0.93]])
def test_the_posterior_is_that_of_the_joint_distribution(y: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "KEPT", 1.0)
    x, future = np.arange(1.0, len(y) + 1), np.array([9.0, 30.0])
    weights, means, variances = dense(x, np.array(y), future)
    found = extrapolate(x, np.array(y), future)
    mean = float(weights @ means)
    assert found.mean()[-1] == pytest.approx(mean, abs=1e-4)
    deviation = math.sqrt(weights @ (variances + means**2) - mean**2)
    assert found.deviation()[-1] == pytest.approx(deviation, abs=1e-4)
    spread = np.sqrt(variances + found.noise)
    for level in (0.3, 0.5, 0.7):
        exact = sum(w * NormalDist(m, s).cdf(level) for w, m, s in zip(weights, means, spread, strict=True))
        assert 1 - found.exceeds(level)[-1] == pytest.approx(exact, abs=5e-4)


@pytest.mark.merge
def test_level_and_rise_are_integrated() -> None:
    """Check one component against a sum over a fine grid of levels and rises."""
    x, y, future = np.array([1.0, 2.0, 3.0]), np.array([0.2, 0.4, 0.45]), np.array([8.0])
    shape, scale = shapes(np.append(x, 8.0), 8.0)[3], grid.RISES[1][0]
    noise = grid.NOISES[3] * np.sqrt((x / x[-1]) ** -grid.FALL)
    level, rise = np.meshgrid(np.linspace(-1, 1.2, 1201), np.linspace(-1, 2, 1201), indexing="ij")
    log = -0.5 * (((level - grid.LEVEL[0]) / grid.LEVEL[1]) ** 2 + (rise / scale - grid.RISE) ** 2)
    for here, value, deviation in zip(shape, y, noise, strict=False):
        log -= 0.5 * ((value - level - rise * here) / deviation) ** 2
    mass = np.exp(log - log.max())
    mass /= mass.sum()
    end = level + rise
    wanted = (mass * end).sum()
    only = pytest.MonkeyPatch()
    with only.context() as patch:
        # The component alone, without wander.
        patch.setattr(grid, "WANDERS", ((1e-9, 1.0),))
        patch.setattr(grid, "TEMPER", 0.0)
        patch.setattr(grid, "KEPT", 1.0)
        prior = np.full((1, len(ODDS), 1, len(grid.RISES)), -np.inf)
        prior[0, 3, 0, 1] = 0.0
        patch.setattr(grid, "_PRIOR", prior)
        patch.setattr(grid, "_SIGMA2", np.full((1, 1, 1, 1), grid.NOISES[3] ** 2))
        grid._design.cache_clear()
        found = extrapolate(x, y, future)
    grid._design.cache_clear()
    assert found.mean()[0] == pytest.approx(wanted, abs=1e-4)
    assert found.deviation()[0] == pytest.approx(math.sqrt((mass * (end - wanted) ** 2).sum()), abs=1e-4)


def test_quantiles_of_a_mixture_invert_its_distribution() -> None:
    mixture = Mixture(np.array([0.7, 0.3]), np.array([[0.2], [0.8]]), np.array([[0.01], [0.0001]]), 0.0001)
    levels = np.linspace(0.005, 0.995, 100)
    found = mixture.quantiles(levels.tolist())
    assert (np.diff(found) >= 0).all()
    parts = [NormalDist(0.2, math.sqrt(0.0101)), NormalDist(0.8, math.sqrt(0.0002))]
    back = [0.7 * parts[0].cdf(one) + 0.3 * parts[1].cdf(one) for one in found]
    assert np.abs(np.array(back) - levels).max() < 0.005


# ------------------------------------------------------------------------------------------------------------ what it says


def test_seed_and_other_curves_change_nothing() -> None:
    values = rising(10)
    other = Curve((1, 2), (0.9, 0.95), ended=True)
    assert ask(values) == ask(values, seed=5, others=(other,))


def test_the_negative_minimised_is_the_same() -> None:
    values = rising(12, noise=0.01)
    up = ask(values)
    down = ask([-value for value in values], mode="min", target=-0.7, low=-1.0, high=0.0)
    assert down.reaches == pytest.approx(up.reaches)
    assert [-one for one in down.mean] == pytest.approx(up.mean)
    assert down.deviation == pytest.approx(up.deviation)
    assert [-one for one in reversed(down.final)] == pytest.approx(up.final)


def test_another_unit_is_the_same() -> None:
    values = rising(12, noise=0.01)
    one = ask(values)
    other = ask([250 * value - 100 for value in values], target=250 * 0.7 - 100, low=-100.0, high=150.0)
    assert other.reaches == pytest.approx(one.reaches)
    assert other.final == pytest.approx([250 * value - 100 for value in one.final])
    assert other.deviation == pytest.approx([250 * value for value in one.deviation])


def test_more_of_a_curve_says_more() -> None:
    widths = [(found := ask(rising(count, noise=0.005))).final[94] - found.final[5] for count in (2, 6, 15, 40)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > 3 * widths[-1]


def test_a_curve_that_has_levelled_off_stays() -> None:
    found = ask(rising(40, noise=0.002), horizon=45)
    assert found.mean[-1] == pytest.approx(rising(45)[-1], abs=0.01)


def test_what_cannot_be_reached_has_no_chance_and_what_is_certain_has_all() -> None:
    assert ask(rising(10), target=1.01).reaches == (0.0,) * 50
    assert ask(rising(10), target=0.0).reaches == (1.0,) * 50


def test_a_spike_is_left_out() -> None:
    plain = rising(20, noise=0.004)
    spiky = [*plain[:12], 0.01, *plain[13:]]
    assert ask(spiky).mean[-1] == pytest.approx(ask(plain).mean[-1], abs=0.01)


def test_a_crash_is_no_spike() -> None:
    values = [*rising(20, noise=0.004), *(0.1,) * 6]
    found = ask(values)
    assert found.mean[0] < 0.3
    assert found.reaches[-1] < 0.5


def test_a_step_of_the_learning_rate_is_believed() -> None:
    before = [0.5 + 0.001 * at for at in range(20)]
    found = ask([*before, 0.7, 0.705, 0.71], target=0.65)
    assert found.mean[0] > 0.68
    assert found.reaches[0] > 0.8


def test_reports_that_are_missing_are_as_good_as_never_made() -> None:
    values = rising(20)
    values[4] = values[19] = math.nan
    kept = [at for at in range(20) if at not in (4, 19)]
    short = Curve((*(at + 1 for at in kept),), tuple(values[at] for at in kept))
    question = Question(short, 60, target=0.7, low=0.0, high=1.0)
    assert GridPredictor().predict(question).final == pytest.approx(ask(values).final)
    with pytest.raises(NotPredictableError):
        ask([math.nan, math.inf])


def test_a_long_curve_is_averaged() -> None:
    long = rising(5000, noise=0.01)
    found = ask(long, horizon=6000)
    assert found.mean[-1] == pytest.approx(0.8 - 0.6 * 6000**-0.7, abs=0.005)
    assert found.final[-1] - found.final[0] > 0.03, "the noise of reports is averaged away"


def test_at_the_horizon_there_is_nothing_to_say() -> None:
    assert ask(rising(10), horizon=10) == Prediction((), (), ())


@pytest.mark.merge
@pytest.mark.parametrize("seen", [3, 8, 20])
def test_calibrated_on_synthetic_curves(seen: int) -> None:
    """Check on random curves that the central 90 % contain most ends, and the central half little more than half."""
    rng = np.random.default_rng(3)
    at, inside, half = np.arange(1, 51), 0, 0
    for kind in range(150):
        start, end, noise = rng.uniform(0.05, 0.3), rng.uniform(0.4, 0.95), rng.uniform(0.002, 0.03)
        speed = rng.uniform(0.3, 1.2)
        shape = (at**-speed, np.exp(-((at / rng.uniform(3, 20)) ** speed)), 1 / (1 + (at / rng.uniform(2, 12)) ** 2))[
            kind % 3
        ]
        curve = np.clip(end - (end - start) * shape + noise * rng.normal(size=50), 0, 1)
        final = ask(curve[:seen].tolist(), horizon=50).final
        inside += final[4] <= curve[-1] <= final[95]
        half += final[25] <= curve[-1] <= final[74]
    assert inside >= 0.85 * 150
    assert half >= 0.4 * 150
