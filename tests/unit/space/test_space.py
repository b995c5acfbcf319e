"""Tests of whole spaces: grids, drawn values, problems and order."""

import random

import pytest

from hopyard.space import Choice, Constant, IntUniform, Space, Uniform, below, canonical_json, stream

pytestmark = pytest.mark.quick

SMALL = Space.from_dict({"a": {"choice": ["x", "y"]}, "b": {"int": [1, 3]}, "c": 7})


def test_a_grid_by_hand() -> None:
    assert list(SMALL.grid()) == [
        {"a": "x", "b": 1, "c": 7},
        {"a": "x", "b": 2, "c": 7},
        {"a": "x", "b": 3, "c": 7},
        {"a": "y", "b": 1, "c": 7},
        {"a": "y", "b": 2, "c": 7},
        {"a": "y", "b": 3, "c": 7},
    ]
    assert SMALL.size == SMALL.grid_size == 6
    assert [SMALL.at(index) for index in range(6)] == list(SMALL.grid())


@pytest.mark.parametrize("index", [-1, 6, 100])
def test_no_point_beyond_the_grid(index: int) -> None:
    with pytest.raises(IndexError, match=f"6 points, found index {index}"):
        SMALL.grid_at(index)
    with pytest.raises(IndexError, match=f"6 configurations, found index {index}"):
        SMALL.at(index)


def test_one_endless_parameter_makes_the_space_endless() -> None:
    assert Space({**SMALL, "d": Uniform(0, 1)}).size is None


def test_problems_name_each_value() -> None:
    assert SMALL.problems({"a": "z", "b": 2, "d": 1}) == [
        "c is missing",
        'a = "z" is outside {"choice": ["x", "y"]}',
        "d is not a parameter of the space",
    ]
    assert SMALL.contains({"a": "x", "b": 2, "c": 7})


def test_order_is_part_of_a_space() -> None:
    assert Space(dict(reversed(list(SMALL.items())))) != SMALL
    assert SMALL != {"a": 1}


def test_a_space_reads_like_a_mapping() -> None:
    assert list(SMALL) == ["a", "b", "c"]
    assert SMALL["a"] == Choice(("x", "y"))
    assert len(SMALL) == 3
    assert repr(Space({"c": Constant(7)})) == "Space({'c': 7})"


def test_drawn_values_are_pinned() -> None:
    # A change of these values breaks the replay of all recorded experiments.
    space = Space.from_dict(
        {
            "lr": {"loguniform": [1e-4, 1]},
            "m": {"uniform": [0, 1]},
            "n": {"int": [1, 1000]},
            "w": {"logint": [1, 1000]},
            "a": {"choice": ["x", "y", "z"]},
        }
    )
    found = space.sample_at(7, 3)
    assert found == {
        "lr": pytest.approx(0.038546049102966704, rel=1e-12),
        "m": 0.7317362720054399,
        "n": 485,
        "w": 1,
        "a": "x",
    }


def test_one_draw_moves_the_callers_generator_the_same_for_each_space() -> None:
    one, two = random.Random(1), random.Random(1)
    SMALL.sample(one)
    Space({"d": IntUniform(0, 9)}).sample(two)
    assert one.random() == two.random()


def test_attempts_are_different_draws() -> None:
    space = Space({"d": Uniform(0, 1)})
    assert len({canonical_json(space.sample_at(1, 1, attempt)) for attempt in range(50)}) == 50


def test_streams_are_told_apart_by_every_part() -> None:
    named: list[tuple[str | int, ...]] = [("ab", "c"), ("a", "bc"), ("abc",), (1,), ("1",), (1, 1), (11,)]
    assert len({stream(*name).random() for name in named}) == len(named)
    assert stream("a", 1).random() == stream("a", 1).random()


def test_below_reaches_every_integer() -> None:
    rng = random.Random(0)
    assert {below(rng, 5) for _ in range(200)} == set(range(5))
    assert below(rng, 1) == 0


def test_canonical_json_goes_by_value() -> None:
    assert canonical_json({"b": 1.0, "a": [1e0, 0.5, -0.0]}) == '{"a":[1,0.5,0],"b":1}'
    assert canonical_json(True) != canonical_json(1)
    with pytest.raises(ValueError, match="nan is not finite"):
        canonical_json([float("nan")])
