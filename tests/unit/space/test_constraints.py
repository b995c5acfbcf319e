"""Tests of constraints between hyperparameters."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.space import (
    Choice,
    Constraint,
    ConstraintsError,
    IntUniform,
    JsonValue,
    Parameter,
    Space,
    SpaceError,
    Uniform,
    When,
)

pytestmark = pytest.mark.quick

VALUES: dict[str, JsonValue] = {
    "a": 3,
    "b": 4.0,
    "text": "sgd",
    "flag": True,
    "layers": [64, 32],
    "model.depth": 2,
    "none": None,
    "zero": 0,
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a * b <= 12", True),
        ("a * b < 12", False),
        ("a + b - 1 == 6", True),
        ("b / a > 1.3 and b // a == 1", True),
        ("b % a == 1 or a < 0", True),
        ("a ** 2 + b ** 2 == 5 ** 2", True),
        ("-a < 0 < a", True),
        ("0 < a < 3", False),
        ("not a > 3", True),
        ("text == 'sgd'", True),
        ("text in ['adam', 'sgd']", True),
        ("text not in ('adam', 'sgd')", False),
        ("a in [1, 2, 3]", True),
        ("a != 3.0", False),
        ("flag", True),
        ("not flag or a == 3", True),
        ("flag == true", True),
        ("flag == 1", False),
        ("none == null", True),
        ("max(layers) <= 64 and min(layers) >= 32 and len(layers) == 2", True),
        ("max(a, b) == 4 and min(a, b, 1) == 1 and abs(0 - a) == 3", True),
        ("log(a) < 1.1 and log(8, 2) == a", True),
        ("model.depth * a == 6", True),
        ("len(text) == 3", True),
    ],
)
def test_expressions(text: str, holds: bool) -> None:
    assert (Constraint(text, VALUES).objection(VALUES) is None) is holds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a > b", "the constraint a > b does not hold with a = 3, b = 4.0"),
        ("a / zero > 1", "cannot be computed: division by zero with a = 3, zero = 0"),
        ("text > 1", 'cannot be computed: needs a number, found "sgd"'),
        ("flag + 1 > 1", "cannot be computed: needs a number, found true"),
        ("log(zero) < 1", "cannot be computed: "),
        ("(0 - a) ** 0.5 < 1", "cannot be computed: "),
        ("9.0 ** (a * 999) > 1", "cannot be computed: "),
        ("a or flag", "cannot be computed: needs true or false, found 3"),
        ("len(a) > 1", "cannot be computed: len needs a list or text, found 3"),
    ],
)
def test_why_values_do_not_fit(text: str, reason: str) -> None:
    objection = Constraint(text, VALUES).objection(VALUES)
    assert objection is not None
    assert reason in objection


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a <", 'needs an expression such as batch_size * width <= 4096, found "a <": invalid syntax'),
        ("", "needs an expression such as"),
        ("a * b", 'needs a comparison such as batch_size * width <= 4096, found "a * b"'),
        ("max(a, b)", "needs a comparison"),
        ("1 < 2", 'needs the name of a parameter, found "1 < 2"'),
        ("c < 2", "c is not a parameter of the space; it has: a, b, flag, layers, model.depth"),
        ("txt == 'sgd'", "txt is not a parameter of the space (did you mean text?)"),
        ("model < 2", "model is not a parameter of the space"),
        ("sqrt(a) < 2", "unknown function sqrt; allowed: min, max, abs, log, len"),
        ("abs(a, b) < 2", "abs takes 1 to 1 arguments, found 2"),
        ("a.__class__ == 1", "a.__class__ is not a parameter of the space"),
        ("__import__('os').system('true') == 0", "is not allowed; allowed are numbers"),
        ("(lambda: a)() == 1", "is not allowed"),
        ("[x for x in layers] == 1", "is not allowed"),
        ("layers[0] < 2", '"layers[0]" is not allowed'),
        ("a if flag else b", "needs a comparison"),
        ("layers == [64, 32]", '"[64, 32]" is not allowed'),
        ("(a if flag else b) < 1", "is not allowed"),
        ("a is 3", "is and is not are not allowed; write == or !="),
        ("a in layers", 'in needs a list such as [32, 64] after it, found "layers"'),
        ("f'{a}' == 'x'", "is not allowed"),
        ("(a := 3) < 4", "is not allowed"),
        ("a < 1j", "is not allowed"),
        ("a << 3 < 4", "is not allowed"),
        ("a < 1" + " + 1" * 400, "needs an expression of at most 1000 characters"),
        ("-" * 200 + "a < 1", "is nested more than 50 levels deep"),
        ("(" * 300 + "a" + ")" * 300 + " < 1", "needs an expression such as"),
        (3, "needs an expression such as batch_size * width <= 4096, found 3"),
    ],
)
def test_what_is_no_constraint_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpaceError) as caught:
        space_with(text)
    problem = caught.value.problems[0]
    assert problem.path == ("constraints", 1)
    assert message in problem.message


def space_with(text: str) -> Space:
    parameters: dict[str, Parameter] = {name: Choice((1,)) for name in ("a", "b", "text", "flag", "layers")}
    return Space({**parameters, "model": {"depth": Choice((1,))}}, ["a == 1", text])


SPACE = Space(
    {
        "width": IntUniform(1, 8),
        "batch": Choice((1, 2, 4)),
        "kind": Choice(("x", "y")),
        "extra": When(Uniform(0, 1, count=3), {"kind": "y"}),
    },
    ["width * batch <= 8", "extra < 0.6 and width != 3"],
)


def test_a_constraint_on_what_is_absent_holds() -> None:
    assert SPACE.contains({"width": 3, "batch": 1, "kind": "x"})
    assert SPACE.problems({"width": 3, "batch": 1, "kind": "y", "extra": 0.5}) == [
        "the constraint extra < 0.6 and width != 3 does not hold with extra = 0.5, width = 3"
    ]
    assert not SPACE.contains({"width": 5, "batch": 2, "kind": "x"})


def test_values_are_judged_before_constraints() -> None:
    assert SPACE.problems({"width": "wide", "batch": 2, "kind": "x"}) == ['width = "wide" is outside {"int": [1, 8]}']


def test_a_grid_is_filtered() -> None:
    points = list(SPACE.grid())
    assert SPACE.grid_size == 8 * 3 * 4
    assert points == [point for index in range(SPACE.grid_size) if SPACE.fits(point := SPACE.grid_at(index))]
    # Kind x: 8, 4 and 2 widths for the batch sizes. Kind y: two of the three extras, each without width 3.
    assert len(points) == (8 + 4 + 2) + 2 * (7 + 3 + 2)


@pytest.mark.merge
@given(st.integers(0, 2**63 - 1), st.integers(0, 100))
def test_draws_fit(seed: int, ordinal: int) -> None:
    assert SPACE.contains(SPACE.sample_at(seed, ordinal))
    assert SPACE.contains(SPACE.sample(random.Random(seed)))


def test_a_draw_that_fits_is_the_same_with_and_without_constraints() -> None:
    free = SPACE.constrained(())
    draws = [(free.sample_at(5, ordinal), SPACE.sample_at(5, ordinal)) for ordinal in range(100)]
    assert all(one == other for one, other in draws if SPACE.contains(one))
    assert 5 < sum(one != other for one, other in draws) < 95


def test_constraints_that_nothing_fits_say_what_they_let_through() -> None:
    space = Space({"a": IntUniform(1, 10), "b": IntUniform(1, 10)}, ["a + b > 20", "a <= 10"])
    with pytest.raises(ConstraintsError) as caught:
        space.sample_at(1, 1)
    assert str(caught.value).startswith(
        "constraints: 0 of 1000 configurations fitted (a + b > 20 let 0 through, a <= 10 let 1000 through; the last one: "
        "the constraint a + b > 20 does not hold with a = "
    )


def test_constraints_belong_to_a_space() -> None:
    free = SPACE.constrained(())
    assert free != SPACE
    assert free.to_dict() == SPACE.to_dict()
    assert free.constrained(["width * batch <= 8", "extra < 0.6 and width != 3"]) == SPACE
    assert repr(SPACE).endswith("constraints=['width * batch <= 8', 'extra < 0.6 and width != 3'])")
