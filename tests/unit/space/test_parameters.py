"""Tests of parameters with values computed by hand."""

import random

import pytest

from hopyard.space import Choice, Constant, IntUniform, LogInt, LogUniform, Parameter, Space, Uniform

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("parameter", "grid"),
    [
        (Uniform(0, 1, count=5), [0.0, 0.25, 0.5, 0.75, 1.0]),
        (Uniform(0, 0.3, count=4), [0.0, 0.1, 0.2, 0.3]),
        (Uniform(0.1, 0.5, step=0.1), [0.1, 0.2, 0.3, 0.4, 0.5]),
        (Uniform(0, 1, step=0.4), [0.0, 0.4, 0.8]),
        (LogUniform(1e-4, 1, count=5), [1e-4, 1e-3, 1e-2, 1e-1, 1.0]),
        (LogUniform(2, 8, count=3), [2.0, 4.0, 8.0]),
        (IntUniform(1, 4), [1, 2, 3, 4]),
        (IntUniform(0, 10, step=5), [0, 5, 10]),
        (IntUniform(0, 11, step=5), [0, 5, 10]),
        (IntUniform(0, 10, count=3), [0, 5, 10]),
        (IntUniform(0, 3, count=3), [0, 2, 3]),
        (IntUniform(1, 2, count=5), [1, 2]),
        (LogInt(1, 1000, count=4), [1, 10, 100, 1000]),
        (LogInt(1, 4, count=6), [1, 2, 3, 4]),
        (LogInt(3, 5), [3, 4, 5]),
        (Choice((64, 32, None)), [64, 32, None]),
        (Constant([1, 2]), [[1, 2]]),
    ],
)
def test_grids(parameter: Parameter, grid: list[object]) -> None:
    assert list(parameter.grid()) == grid


@pytest.mark.parametrize(
    ("parameter", "inside", "outside"),
    [
        (Uniform(0, 1), [0, 1, 0.5, 1.0], [-1e-9, 1.0001, True, None, "0.5", float("nan")]),
        (Uniform(0, 1, step=0.1), [0.3, 0.30000000000000004, 1], [0.35, 1.1]),
        (LogUniform(0.1, 10), [0.1, 1, 10], [0, 0.09, 11, float("inf")]),
        (IntUniform(1, 9, step=2), [1, 9, 3.0], [2, 11, 3.5, True]),
        (LogInt(1, 9), [1, 9.0], [0, 10, 1.5]),
        (Choice((1, "a", None, [1])), [1, 1.0, "a", None, [1]], [True, 2, "A", [True], {1}]),
        (Constant(False), [False], [0, None]),
    ],
)
def test_contains(parameter: Parameter, inside: list[object], outside: list[object]) -> None:
    assert [value for value in inside if not parameter.contains(value)] == []
    assert [value for value in outside if parameter.contains(value)] == []


@pytest.mark.parametrize(
    ("parameter", "value", "normal"),
    [
        (IntUniform(1, 9), 3.0, "3"),
        (LogInt(1, 9), 9.0, "9"),
        (Choice((1, 2.0)), 1.0, "1"),
        (Choice((1, 2.0)), 2, "2.0"),
        (Uniform(0, 1), 1, "1"),
    ],
)
def test_a_value_gets_the_type_of_its_parameter(parameter: Parameter, value: float, normal: str) -> None:
    space = Space({"a": {"b": parameter}})
    assert repr(space.normalize({"a": {"b": value}})) == f"{{'a': {{'b': {normal}}}}}"


@pytest.mark.parametrize(
    ("parameter", "size"),
    [
        (Uniform(0, 1), None),
        (Uniform(0, 1, count=3), None),
        (Uniform(0, 1, step=0.1), 11),
        (LogUniform(1, 2), None),
        (IntUniform(-2, 2), 5),
        (IntUniform(0, 11, step=5), 3),
        (LogInt(1, 8, count=2), 8),
        (Choice((1, 2)), 2),
        (Constant("a"), 1),
    ],
)
def test_sizes(parameter: Parameter, size: int | None) -> None:
    assert parameter.size == size


def test_a_loguniform_gives_each_decade_its_part() -> None:
    rng, parameter = random.Random(0), LogUniform(1e-3, 1.0)
    draws = [parameter.sample(rng) for _ in range(3000)]
    decades = [sum(low <= draw < 10 * low for draw in draws) for low in (1e-3, 1e-2, 1e-1)]
    assert all(900 <= decade <= 1100 for decade in decades)


def test_a_logint_prefers_small_integers() -> None:
    rng, parameter = random.Random(0), LogInt(1, 7)
    draws = [parameter.sample(rng) for _ in range(3000)]
    # Probability of 1: log 2 / log 8, a third of all draws.
    assert 900 <= draws.count(1) <= 1100
    assert set(draws) == set(range(1, 8))


def test_every_choice_is_equally_likely() -> None:
    rng, parameter = random.Random(0), Choice(("a", "b", "c"))
    draws = [parameter.sample(rng) for _ in range(3000)]
    assert all(900 <= draws.count(value) <= 1100 for value in "abc")


def test_values_are_the_callers_own() -> None:
    parameter = Choice(([1],))
    first = parameter.sample(random.Random(0))
    assert isinstance(first, list)
    first.append(2)
    assert parameter.sample(random.Random(0)) == [1]


def test_true_and_one_are_different_choices() -> None:
    assert Choice((1, True)).size == 2
    assert Choice((1,)) != Choice((True,))
    assert Choice(([1],)) == Choice(([1],))
    assert Constant(0) != Constant(False)
