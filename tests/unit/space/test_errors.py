"""Tests of the errors of spaces and parameters, with their messages."""

import pytest

from hopyard.space import Constant, Space, SpaceError

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"uniform": [1, 1]}, "uniform needs low < high, found [1, 1]"),
        ({"uniform": [2, 1]}, "uniform needs low < high, found [2, 1]"),
        ({"uniform": 3}, "uniform needs [low, high], found 3"),
        ({"uniform": [1, 2, 3]}, "uniform needs [low, high], found [1, 2, 3]"),
        ({"uniform": ["a", 2]}, 'uniform needs finite numbers [low, high], found ["a", 2]'),
        ({"uniform": [True, 2]}, "uniform needs finite numbers [low, high], found [true, 2]"),
        ({"uniform": [0, float("inf")]}, "uniform needs finite numbers [low, high], found [0, Infinity]"),
        ({"uniform": [float("nan"), 1]}, "uniform needs finite numbers [low, high], found [NaN, 1]"),
        (
            {"uniform": [-1e308, 1e308]},
            "uniform needs bounds whose distance a double can hold, found [-1e+308, 1e+308]",
        ),
        ({"uniform": [0, 1], "step": 2}, "uniform needs 0 < step <= high - low, found 2"),
        ({"uniform": [0, 1], "step": 0}, "uniform needs 0 < step <= high - low, found 0"),
        ({"uniform": [0, 1], "count": 1}, "uniform needs count as an integer >= 2 (grid points), found 1"),
        ({"uniform": [0, 1], "count": 2.5}, "uniform needs count as an integer >= 2 (grid points), found 2.5"),
        (
            {"uniform": [0, 1], "step": 0.1, "count": 2},
            "uniform takes step or count, not both: a step already says what the grid is",
        ),
        (
            {"uniform": [0, 1], "counts": 2},
            'uniform has no option "counts" (did you mean count?); allowed options: step, count',
        ),
        ({"choice": [1], "count": 2}, 'choice has no option "count"; it takes none'),
        ({"loguniform": [0, 1]}, "loguniform needs low > 0, found [0, 1]"),
        ({"loguniform": [-1, 1]}, "loguniform needs low > 0, found [-1, 1]"),
        ({"int": [1.5, 3]}, "int needs integers [low, high], found [1.5, 3]"),
        ({"int": [1, True]}, "int needs integers [low, high], found [1, true]"),
        ({"int": [3, 3]}, "int needs low < high, found [3, 3]"),
        ({"int": [0, 2**60]}, "int needs bounds within +-2^53, found [0, 1152921504606846976]"),
        ({"int": [0, 4], "step": 9}, "int needs step as an integer, 1 <= step <= high - low, found 9"),
        ({"logint": [0, 4]}, "logint needs low >= 1, found [0, 4]"),
        ({"choice": []}, "choice needs at least one value, found []"),
        ({"choice": "abc"}, 'choice needs a list of values, found "abc"'),
        ({"choice": [1, 2, 1.0]}, "choice needs different values, found 1.0 twice"),
        ({"choice": [[1], [1]]}, "choice needs different values, found [1] twice"),
        ({"choice": [float("nan")]}, "choice needs JSON values, but nan is not finite"),
        ({"choice": [2**64]}, "choice needs JSON values, but 18446744073709551616 does not fit in 64 bits"),
        ({"choice": [{1: 2}]}, "choice needs JSON values, but the key 1 is not text"),
        ({"constant": {1, 2}}, "constant needs a JSON value, but a set is not a JSON value"),
        ({"uniform": [0, 1], "choice": [1]}, "a parameter has one kind, found uniform, choice"),
        ({"count": 3}, 'needs a kind, found {"count": 3}'),
        ({"log_uniform": [0, 1]}, "unknown kind log_uniform (did you mean loguniform?)"),
        (
            {"subspace": {}},
            "unknown kind subspace; allowed kinds: uniform, loguniform, int, logint, choice, constant, sequence",
        ),
        ([1, 2], "a bare list is ambiguous: write {choice: ...} or {constant: ...}, found [1, 2]"),
    ],
)
def test_refused_with_reason(written: object, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        Space.from_dict({"x": written})
    assert str(caught.value).startswith(f"space.x: {message}")
    assert [problem.path for problem in caught.value.problems] == [("x",)]


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(SpaceError) as caught:
        Space.from_dict({"a": {"uniform": [1, 0]}, "fine": 3, "b": {"choice": []}})
    assert [problem.path for problem in caught.value.problems] == [("a",), ("b",)]


def test_a_grid_names_every_undivided_parameter() -> None:
    space = Space.from_dict({"a": {"uniform": [0, 1]}, "b": {"loguniform": [1, 2]}, "c": 1})
    with pytest.raises(SpaceError) as caught:
        space.grid()
    assert str(caught.value).splitlines() == [
        "space.a: uniform needs count or step for a grid, found neither",
        "space.b: loguniform needs count for a grid, found none",
    ]


@pytest.mark.parametrize("data", [None, 3, [1]])
def test_a_space_is_a_mapping(data: object) -> None:
    with pytest.raises(SpaceError, match="needs a mapping of names to parameters"):
        Space.from_dict(data)  # type: ignore[arg-type]  # the point of the test


def test_names_are_text() -> None:
    with pytest.raises(SpaceError, match="a parameter's name is non-empty text, found 1"):
        Space.from_dict({1: 2})  # type: ignore[dict-item]  # the point of the test
    with pytest.raises(SpaceError, match="needs a non-empty name and a Parameter"):
        Space({"": Constant(1)})
