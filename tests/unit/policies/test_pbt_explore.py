"""Tests of the exploration step of population based training: properties for all spaces, and values computed by hand."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.space import Space, parameter_from_data
from hopyard_policies.pbt.explore import closure, explored, perturbed

pytestmark = pytest.mark.quick

EVERYTHING = {
    "lr": {"loguniform": [1e-4, 1.0]},
    "momentum": {"uniform": [-1, 1]},
    "dropout": {"uniform": [0, 0.5], "step": 0.1},
    "batch": {"choice": [32, 64, 128]},
    "layers": {"int": [1, 4]},
    "width": {"logint": [8, 64]},
    "optimizer": {"choice": ["sgd", "adam"]},
    "beta": {"uniform": [0.8, 0.99], "when": {"optimizer": "adam"}},
    "model": {"space": {"depth": {"int": [1, 3]}, "norm": {"choice": [True, False]}}},
    "seed": 16,
}
CONSTRAINTS = ["batch * width <= 4096", "model.depth <= layers"]
SPACE = Space.from_dict(EVERYTHING).constrained(CONSTRAINTS)


@pytest.mark.merge
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.25, 1.0]), st.sets(st.sampled_from([*SPACE, "model"])))
def test_what_is_explored_is_in_the_space_and_what_is_frozen_stays(seed: int, resample: float, named: set[str]) -> None:
    rng = random.Random(seed)
    inherited = SPACE.sample(rng)
    frozen = closure(SPACE, sorted(named))
    found = explored(SPACE, inherited, frozen, resample, rng)
    assert SPACE.problems(found) == []
    before, after = SPACE.flat(inherited), SPACE.flat(found)
    assert {name: after.get(name) for name in frozen} == {name: before.get(name) for name in frozen}
    again = random.Random(seed)
    assert explored(SPACE, SPACE.sample(again), frozen, resample, again) == found


@given(st.sampled_from([name for name in SPACE if name != "seed"]), st.integers(0, 2**32))
def test_a_perturbed_value_is_another_one_but_at_a_bound(name: str, seed: int) -> None:
    rng, parameter = random.Random(seed), SPACE[name]
    value = parameter.sample(rng)
    found = perturbed(parameter, value, rng)
    assert parameter.contains(found)
    assert found != value or value in (0.0, getattr(parameter, "low", None), getattr(parameter, "high", None))


def outcomes(written: Any, value: Any) -> list[Any]:
    """Return all results of perturbing a value with 30 seeds."""
    parameter = parameter_from_data(written)
    found = [perturbed(parameter, value, random.Random(seed)) for seed in range(30)]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(
    ("written", "value", "becomes"),
    [
        ({"loguniform": [0.01, 1]}, 0.1, [0.1 * 0.8, 0.1 * 1.2]),
        ({"loguniform": [0.01, 1]}, 0.9, [0.9 * 0.8, 1.0]),
        ({"uniform": [-1, 1]}, -0.5, [-0.5 * 0.8, -0.5 * 1.2]),
        ({"uniform": [0, 1]}, 0.0, [0.0]),  # Only resampling changes a zero.
        ({"uniform": [0, 1], "step": 0.1}, 0.5, [0.4, 0.6]),
        ({"uniform": [0, 1], "step": 0.1}, 1.0, [0.8, 1.0]),
        ({"uniform": [0, 1], "step": 0.1}, 0.0, [0.0, 0.1]),
        ({"int": [1, 100]}, 50, [40, 60]),
        ({"int": [1, 100]}, 2, [1, 3]),  # 1.6 and 2.4 round to 2, so the neighbours are used.
        ({"int": [0, 100], "step": 25}, 50, [25, 75]),
        ({"int": [-10, 10]}, -5, [-4, -6]),
        ({"int": [-10, 10]}, 0, [-1, 1]),
        ({"int": [-10, 10]}, -1, [0, -2]),
        ({"int": [1, 3]}, 3, [2, 3]),
        ({"logint": [1, 1024]}, 512, [410, 614]),
        ({"logint": [1, 1024]}, 1000, [800, 1024]),
        ({"choice": [32, 64, 128]}, 64, [32, 128]),
        ({"choice": [32, 64, 128]}, 32, [64]),
        ({"choice": [32, 64, 128]}, 128, [64]),
        ({"choice": ["a"]}, "a", ["a"]),
        (16, 16, [16]),
    ],
)
def test_perturbed_by_hand(written: Any, value: Any, becomes: list[Any]) -> None:
    assert sorted(outcomes(written, value), key=str) == sorted(becomes, key=str)


def test_a_quarter_is_drawn_anew() -> None:
    space = Space.from_dict({"x": {"uniform": [0, 1]}})
    rng = random.Random(1)
    found = [explored(space, {"x": 0.5}, (), 0.25, rng)["x"] for _ in range(4000)]
    anew = sum(value not in (0.4, 0.6) for value in found)
    assert 900 < anew < 1100
    assert 1350 < found.count(0.4) < 1650


@pytest.mark.merge
def test_conditions_hold_after_a_change() -> None:
    found = [explored(SPACE, SPACE.sample(random.Random(seed)), (), 0.0, random.Random(seed)) for seed in range(200)]
    assert {("beta" in one, one["optimizer"]) for one in found} == {(True, "adam"), (False, "sgd")}


def test_freezing_freezes_what_decides_whether_it_is_there() -> None:
    assert closure(SPACE, ["beta"]) == {"beta", "optimizer"}
    assert closure(SPACE, ["model"]) == {"model.depth", "model.norm"}
    assert closure(SPACE, []) == frozenset()
    with pytest.raises(ValueError, match="frozen names 'modle', which is not a parameter of the space; it has: lr, "):
        closure(SPACE, ["modle"])


def test_where_nothing_else_fits_all_is_inherited() -> None:
    space = Space.from_dict({"x": {"uniform": [0, 1]}}).constrained(["x == 0.5"])
    assert explored(space, {"x": 0.5}, (), 0.0, random.Random(0)) == {"x": 0.5}


def test_what_is_not_of_the_space_is_drawn_anew() -> None:
    space = Space.from_dict({"x": {"int": [1, 3]}, "y": {"choice": ["a"]}})
    assert explored(space, {"x": 7, "z": 1}, (), 0.0, random.Random(0)) in [{"x": n, "y": "a"} for n in (1, 2, 3)]
