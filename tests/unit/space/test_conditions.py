"""Tests of parameters with conditions, and of groups of parameters."""

import itertools
import json
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hopyard.space import (
    Choice,
    Constant,
    Entry,
    IntUniform,
    Parameter,
    Space,
    SpaceError,
    Uniform,
    When,
    canonical_json,
)
from tests.unit.space.strategies import SEEDS, conditional_spaces, countable, parameters

pytestmark = pytest.mark.quick

OPTIMIZERS = Space.from_dict(
    {
        "momentum": {"uniform": [0, 1], "count": 2, "when": {"optimizer": "sgd"}},
        "optimizer": {"choice": ["sgd", "adam", "lbfgs"]},
        "beta": {"choice": [0.9, 0.99], "when": {"optimizer": ["adam"], "model.kind": "cnn"}},
        "model": {
            "space": {
                "kind": {"choice": ["cnn", "mlp"]},
                "depth": {"int": [1, 3], "when": {"model.kind": "mlp"}},
                "head": {"space": {"bias": True}, "when": {"model.kind": "cnn"}},
            }
        },
    }
)


def test_all_points_by_hand() -> None:
    mlp = [{"kind": "mlp", "depth": depth} for depth in (1, 2, 3)]
    cnn = {"kind": "cnn", "head": {"bias": True}}
    assert list(OPTIMIZERS.grid()) == [
        {"momentum": 0.0, "optimizer": "sgd", "model": cnn},
        *({"momentum": 0.0, "optimizer": "sgd", "model": model} for model in mlp),
        {"momentum": 1.0, "optimizer": "sgd", "model": cnn},
        *({"momentum": 1.0, "optimizer": "sgd", "model": model} for model in mlp),
        {"optimizer": "adam", "beta": 0.9, "model": cnn},
        {"optimizer": "adam", "beta": 0.99, "model": cnn},
        *({"optimizer": "adam", "model": model} for model in mlp),
        {"optimizer": "lbfgs", "model": cnn},
        *({"optimizer": "lbfgs", "model": model} for model in mlp),
    ]
    assert OPTIMIZERS.grid_size == 17
    assert OPTIMIZERS.size is None


def test_what_is_not_in_it_is_told() -> None:
    assert OPTIMIZERS.problems(
        {"optimizer": "adam", "momentum": 0.5, "model": {"kind": "cnn", "depth": 2, "x": 1}}
    ) == [
        "beta is missing",
        "model.head is missing",
        'momentum = 0.5 is given, though it is there only when optimizer is "sgd"',
        'model.depth = 2 is given, though it is there only when model.kind is "mlp"',
        "model.x is not a parameter of the space",
    ]
    assert OPTIMIZERS.problems({"optimizer": "lbfgs", "model": 3}) == ["model = 3 is not a mapping of names to values"]
    assert OPTIMIZERS.problems({"optimizer": "lbfgs"}) == ["model is missing"]
    assert OPTIMIZERS.problems(
        {"optimizer": "lbfgs", "model": {"kind": "mlp", "depth": 1, "head": {"bias": True}}}
    ) == [
        'model.head is given, though it is there only when model.kind is "cnn"',
        'model.head.bias = true is given, though it is there only when model.kind is "cnn"',
    ]
    assert "model.depth is not a parameter of the space" in OPTIMIZERS.problems(
        {"optimizer": "lbfgs", "model": {"kind": "mlp", "depth": 1}, "model.depth": 1}
    )


def test_names_of_groups_are_dotted() -> None:
    assert list(OPTIMIZERS) == ["momentum", "optimizer", "beta", "model.kind", "model.depth", "model.head.bias"]
    assert OPTIMIZERS["model.depth"] == IntUniform(1, 3)
    assert [str(condition) for condition in OPTIMIZERS.conditions("beta")] == [
        'optimizer is "adam"',
        'model.kind is "cnn"',
    ]
    configuration = {"optimizer": "lbfgs", "model": {"kind": "mlp", "depth": 2}}
    assert OPTIMIZERS.flat(configuration) == {"optimizer": "lbfgs", "model.kind": "mlp", "model.depth": 2}


def test_the_written_form_is_short() -> None:
    written = {
        "a": {"choice": [1, [2]]},
        "b": {"constant": 3, "when": {"a": 1}},
        "c": {"space": {"d": 4}, "when": {"a": [[2]]}},
    }
    assert Space.from_dict(written).to_dict() == written
    assert Space.from_dict({**written, "b": {"constant": 3, "when": {"a": [1.0]}}}) == Space.from_dict(written)


def test_a_child_of_an_absent_parent_is_absent() -> None:
    space = Space(
        {
            "a": Choice((1, 2)),
            "b": When(Choice((1, 2)), {"a": 1}),
            "c": When(Choice((1, 2)), {"b": 1}),
            "d": Constant(0),
        }
    )
    assert [canonical_json(found) for found in space.grid()] == [
        '{"a":1,"b":1,"c":1,"d":0}',
        '{"a":1,"b":1,"c":2,"d":0}',
        '{"a":1,"b":2,"d":0}',
        '{"a":2,"d":0}',
    ]


def test_a_wide_parent_is_counted_without_a_list() -> None:
    space = Space({"n": IntUniform(1, 10**12), "x": When(IntUniform(1, 10**9), {"n": [7, 10**12]})})
    assert space.size == (10**12 - 2) + 2 * 10**9
    assert space.at(6) == {"n": 7, "x": 1}
    assert space.at(6 + 10**9) == {"n": 8}
    assert space.at(space.size - 1) == {"n": 10**12, "x": 10**9}


def test_many_independent_conditions_are_counted_at_once() -> None:
    entries = dict[str, Entry]()
    for index in range(300):
        entries[f"on{index}"] = Choice((True, False))
        entries[f"x{index}"] = When(IntUniform(1, 4), {f"on{index}": True})
    assert Space(entries).size == 5**300


@pytest.mark.parametrize(
    ("written", "path", "message"),
    [
        (
            {"a": {"uniform": [0, 1], "when": {"optimiser": "sgd"}}, "optimizer": {"choice": ["sgd"]}},
            ("a", "when", "optimiser"),
            "optimiser is not a parameter of the space (did you mean optimizer?); it has: a, optimizer",
        ),
        (
            {"m": {"space": {"a": 1, "b": {"constant": 2, "when": {"a": 1}}}}},
            ("m", "space", "b", "when", "a"),
            "a is not a parameter of the space (did you mean m.a?); it has: m.a, m.b",
        ),
        (
            {"a": {"choice": [1, 2]}, "b": {"constant": 1, "when": {"a": [2, 3]}}},
            ("b", "when", "a"),
            '3 is not a value of a, which is {"choice": [1, 2]}',
        ),
        (
            {"a": {"uniform": [0, 1]}, "b": {"constant": 1, "when": {"a": 0.5}}},
            ("b", "when", "a"),
            "needs a parameter whose values can be counted, such as a choice; a is {",
        ),
        (
            {"a": {"choice": [1, 2], "when": {"b": 1}}, "b": {"choice": [1, 2], "when": {"a": 1}}},
            ("a",),
            "its conditions go in a circle: a -> b -> a",
        ),
        (
            {"m": {"space": {"k": {"choice": [1, 2]}}, "when": {"m.k": 1}}},
            ("m", "space", "k"),
            "its conditions go in a circle: m.k -> m.k",
        ),
        (
            {"a": {"choice": [1, 2]}, "m": {"space": {"b": {"constant": 1, "when": {"a": 1}}}, "when": {"a": 2}}},
            ("m", "space", "b", "when", "a"),
            "never holds: a is 1, but also a is 2",
        ),
        (
            {"a": {"constant": 1, "when": {}}},
            ("a",),
            "when needs a mapping of names to values, such as {optimizer: sgd}",
        ),
        (
            {"a": {"constant": 1, "when": "b"}},
            ("a",),
            "when needs a mapping of names to values, such as {optimizer: sgd}",
        ),
        ({"a": 1, "b": {"constant": 1, "when": {"a": []}}}, ("b", "when", "a"), "needs a value or a list of values"),
        ({"a": {"when": {"b": 1}}, "b": 1}, ("a",), "needs a kind, found {}"),
        ({"a": {"space": {}}}, ("a",), "a group needs at least one parameter, found none"),
        ({"a": {"space": [1]}}, ("a",), "a group's space needs a mapping of names to parameters, found [1]"),
        ({"a": {"space": {"b": 1}, "count": 2}}, ("a",), "a group takes space and when, found also count"),
        ({"a": {"space": {"b": {"int": [2, 1]}}}}, ("a", "space", "b"), "int needs low < high, found [2, 1]"),
        ({"a.b": 1, "a": {"space": {"b": 1}}}, ("a", "space", "b"), "a second parameter with the name a.b"),
    ],
)
def test_what_cannot_be_is_refused_at_its_place(
    written: dict[str, object], path: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SpaceError) as caught:
        Space.from_dict(written)
    problem = caught.value.problems[0]
    assert problem.path == path
    assert problem.message.startswith(message)


def test_groups_are_not_nested_without_end() -> None:
    written: dict[str, object] = {"x": 1}
    for _ in range(2000):
        written = {"g": {"space": written}}
    with pytest.raises(SpaceError, match="groups may be nested 10 deep"):
        Space.from_dict(written)


@pytest.mark.merge
@given(conditional_spaces(), SEEDS, st.integers(0, 1000))
def test_samples_are_inside(space: Space, seed: int, ordinal: int) -> None:
    found = space.sample_at(seed, ordinal)
    assert space.contains(found), space.problems(found)
    assert space.sample(random.Random(seed)) == space.sample(random.Random(seed))


@pytest.mark.merge
@given(conditional_spaces())
def test_the_written_form_gives_the_space_back(space: Space) -> None:
    back = Space.from_dict(json.loads(json.dumps(space.to_dict())))
    assert back == space == Space(space.entries)
    assert hash(back) == hash(space)


@pytest.mark.merge
@given(conditional_spaces(), parameters, SEEDS)
def test_adding_a_parameter_leaves_the_others_alone(space: Space, parameter: Parameter, seed: int) -> None:
    larger = Space({"new": parameter, **space.entries}).sample_at(seed, 3)
    larger.pop("new")
    assert larger == space.sample_at(seed, 3)


@pytest.mark.merge
@given(conditional_spaces(countable))
def test_every_configuration_has_one_number(space: Space) -> None:
    assert space.size is not None
    assume(space.size <= 300)
    found = [space.at(index) for index in range(space.size)]
    assert all(space.contains(configuration) for configuration in found)
    assert len({canonical_json(configuration) for configuration in found}) == space.size
    assert space.size == _counted_by_trying(space)


@pytest.mark.merge
@given(conditional_spaces(countable))
def test_grid_points_are_different_and_inside(space: Space) -> None:
    assume(space.grid_size <= 300)
    points = list(space.grid())
    assert len({canonical_json(point) for point in points}) == len(points) == space.grid_size
    assert all(space.contains(point) for point in points)


def _counted_by_trying(space: Space) -> int:
    """Return the number of different configurations, by trying all values of all parameters; absent parameters do not count."""
    ranges = [range(space[name].size or 0) for name in space]
    assume(len(list(itertools.islice(itertools.product(*ranges), 20_001))) <= 20_000)
    found = set[str]()
    for places in itertools.product(*ranges):
        place = dict(zip(space, places, strict=True))
        found.add(canonical_json(space.build(lambda name, parameter: parameter.at(place[name]))))  # noqa: B023
    return len(found)


@pytest.mark.merge
@given(parameters, st.floats(0, 1))
def test_a_unit_interval_covers_every_parameter(parameter: Parameter, unit: float) -> None:
    assume(parameter.has_unit)
    value = parameter.from_unit(unit)
    assert parameter.contains(value)
    back = parameter.to_unit(value)
    assert 0 <= back <= 1
    if parameter.size is not None:
        assert parameter.from_unit(back) == value
        assert parameter.at(parameter.index(value)) == value
    else:
        assert parameter.to_unit(parameter.from_unit(back)) == pytest.approx(back, abs=1e-6)


@pytest.mark.merge
@given(countable)
def test_equal_parts_of_the_unit_interval_are_the_values_in_order(parameter: Parameter) -> None:
    assert parameter.size is not None
    found = [parameter.from_unit((2 * part + 1) / 400) for part in range(200)]
    assert [parameter.index(value) for value in found] == sorted(parameter.index(value) for value in found)
    assert parameter.index(parameter.from_unit(0)) == 0
    assert parameter.index(parameter.from_unit(1)) == parameter.size - 1


def test_units_by_hand() -> None:
    assert Uniform(2, 4).from_unit(0.25) == 2.5
    assert Uniform(2, 4, step=0.5).from_unit(0.5) == 3.0
    assert [Choice(("a", "b", "c")).from_unit(unit) for unit in (0, 0.33, 0.34, 0.67, 1)] == ["a", "a", "b", "c", "c"]
    assert IntUniform(1, 4).to_unit(2) == 0.375
