"""Tests of random and grid search."""

from __future__ import annotations

import pytest

from hopyard.generator import GeneratorParameterError
from hopyard.space import Space, SpaceError, canonical_json
from hopyard_hpgen.generators.grid import GridGenerator
from hopyard_hpgen.generators.random import RandomGenerator

pytestmark = pytest.mark.quick

SPACE = Space.from_dict({"a": {"choice": ["x", "y"]}, "b": {"int": [1, 3]}})


def proposals(generator: RandomGenerator | GridGenerator, count: int) -> list[object]:
    return [generator.create(f"{ordinal}", ordinal) for ordinal in range(count)]


def test_a_grid_by_hand() -> None:
    assert proposals(GridGenerator(SPACE, 0), 8) == [
        {"a": "x", "b": 1},
        {"a": "x", "b": 2},
        {"a": "x", "b": 3},
        {"a": "y", "b": 1},
        {"a": "y", "b": 2},
        {"a": "y", "b": 3},
        None,
        None,
    ]


def test_a_shuffled_grid_has_the_same_points() -> None:
    orders = set[str]()
    for seed in range(5):
        found = proposals(GridGenerator(SPACE, seed, shuffle=True), 7)
        assert found[-1] is None
        assert sorted(map(canonical_json, found[:-1])) == sorted(map(canonical_json, SPACE.grid()))
        orders.add(canonical_json(found))
    assert len(orders) == 5


def test_every_order_of_a_shuffled_grid_is_equally_likely() -> None:
    space = Space.from_dict({"a": {"int": [1, 3]}})
    counts = dict[str, int]()
    for seed in range(1200):
        order = canonical_json(proposals(GridGenerator(space, seed, shuffle=True), 3))
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 6
    assert all(150 <= count <= 250 for count in counts.values())


def test_a_huge_grid_is_not_unrolled() -> None:
    space = Space.from_dict({name: {"int": [1, 1000]} for name in "abcdef"})
    generator = GridGenerator(space, 0, shuffle=True)
    assert generator.size == 10**18
    assert len({canonical_json(found) for found in proposals(generator, 100)}) == 100


@pytest.mark.parametrize("seed", range(5))
def test_random_search_exhausts_a_finite_space(seed: int) -> None:
    found = proposals(RandomGenerator(SPACE, seed), 8)
    assert found[6:] == [None, None]
    assert sorted(map(canonical_json, found[:6])) == sorted(map(canonical_json, SPACE.grid()))


@pytest.mark.merge
def test_random_search_finds_what_is_hardly_ever_drawn() -> None:
    # At least half of all draws are 1 or 2, so the last few of the 3000 values would take very long to draw.
    space = Space.from_dict({"n": {"logint": [1, 3000], "count": 2}})
    found = proposals(RandomGenerator(space, 1), 3001)
    assert found[-1] is None
    assert len({canonical_json(one) for one in found[:-1]}) == 3000


def test_random_search_ends_when_a_continuum_has_hardly_any_points() -> None:
    space = Space.from_dict({"a": {"uniform": [1.0, 1.0000000000000002]}})
    found = proposals(RandomGenerator(space, 1), 4)
    assert [one for one in found if one is not None] in ([{"a": 1.0}, {"a": 1.0000000000000002}], [{"a": 1.0}])
    assert found[-1] is None


def test_a_further_parameter_leaves_random_values_alone() -> None:
    one = Space.from_dict({"lr": {"loguniform": [1e-4, 1]}})
    two = Space.from_dict({"wd": {"uniform": [0, 1]}, "lr": {"loguniform": [1e-4, 1]}})
    for ordinal in range(5):
        first = RandomGenerator(one, 7).create("j", ordinal)
        second = RandomGenerator(two, 7).create("j", ordinal)
        assert first is not None
        assert second is not None
        assert first["lr"] == second["lr"]


def test_parameters_are_checked() -> None:
    with pytest.raises(GeneratorParameterError, match="RandomGenerator has no parameter count, shufle; it takes: none"):
        RandomGenerator(SPACE, 0, shufle=True, count=3)
    with pytest.raises(
        GeneratorParameterError, match="GridGenerator has no parameter shufle; it takes: points, shuffle"
    ):
        GridGenerator(SPACE, 0, shufle=True)
    with pytest.raises(GeneratorParameterError, match='needs shuffle as true or false, found "yes"'):
        GridGenerator(SPACE, 0, shuffle="yes")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(SpaceError, match=r"space\.lr: uniform needs count or step"):
        GridGenerator(Space.from_dict({"lr": {"uniform": [0, 1]}}), 0)
