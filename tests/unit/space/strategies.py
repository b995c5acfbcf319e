"""Hypothesis strategies for parameters and spaces."""

from typing import cast

from hypothesis import strategies as st

from hopyard.space import (
    Choice,
    Constant,
    Entry,
    IntUniform,
    JsonValue,
    LogInt,
    LogUniform,
    Parameter,
    Sequences,
    Space,
    Uniform,
    When,
)

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)
POSITIVE = st.floats(1e-6, 1e6, allow_nan=False)
INTS = st.integers(-1000, 1000)
COUNTS = st.none() | st.integers(2, 6)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=3,
)


uniforms = st.builds(
    lambda bounds, count: Uniform(min(bounds), max(bounds), count=count),
    st.lists(NUMBERS, min_size=2, max_size=2, unique=True),
    COUNTS,
)
stepped = st.builds(
    lambda low, steps, step: Uniform(low / 100, low / 100 + steps * step / 100, step / 100),
    st.integers(-500, 500),
    st.integers(2, 30),
    st.integers(1, 40),
)
loguniforms = st.builds(
    lambda bounds, count: LogUniform(min(bounds), max(bounds), count=count),
    st.lists(POSITIVE, min_size=2, max_size=2, unique=True),
    COUNTS,
)
ints = st.builds(
    lambda bounds, count: IntUniform(min(bounds), max(bounds), count=count),
    st.lists(INTS, min_size=2, max_size=2, unique=True),
    COUNTS,
)
stepped_ints = st.builds(
    lambda low, step, steps: IntUniform(low, low + step * steps, step), INTS, st.integers(1, 9), st.integers(2, 20)
)
logints = st.builds(
    lambda bounds, count: LogInt(min(bounds), max(bounds), count=count),
    st.lists(st.integers(1, 2000), min_size=2, max_size=2, unique=True),
    COUNTS,
)
constants = st.builds(Constant, VALUES)
choices = st.lists(st.integers(-9, 9) | st.booleans() | st.none() | st.text(max_size=2), min_size=1, max_size=5).map(
    lambda values: Choice(tuple({repr(value): value for value in values}.values()))
)

listed_sequences = st.lists(st.sampled_from([0.9, 0.95, 1.0]), min_size=1, max_size=3, unique=True).map(
    lambda gammas: Sequences(
        ({"warmup": {"duration": 5, "target": 0.1, "then": {"exponential": {"gamma": {"choice": list(gammas)}}}}}, 0.1)
    )
)
drawn_sequences = st.builds(
    lambda low, count: Sequences(
        ({"linear": {"start": {"uniform": [low, low + 1], "count": count}, "total_iters": 7}},), 2
    ),
    st.integers(-5, 5),
    st.integers(2, 4),
)

countable: st.SearchStrategy[Parameter] = st.one_of(
    stepped, ints, stepped_ints, logints, constants, choices, listed_sequences
)
parameters: st.SearchStrategy[Parameter] = st.one_of(countable, uniforms, loguniforms, drawn_sequences)
names = st.text("abcdefgh._", min_size=1, max_size=4)
spaces = st.dictionaries(names, parameters, min_size=1, max_size=4).map(Space)
SEEDS = st.integers(0, 2**63 - 1)


@st.composite
def conditional_spaces(draw: st.DrawFn, inner: st.SearchStrategy[Parameter] = parameters) -> Space:
    """Draw a space with parameters that depend on earlier ones, possibly with a group, in a random order."""
    entries = dict[str, Entry]()
    deciders = dict[str, Parameter]()

    def conditioned(entry: Parameter | dict[str, Entry]) -> Entry:
        chosen = draw(st.lists(st.sampled_from(sorted(deciders)), max_size=2, unique=True)) if deciders else []
        conditions = dict[str, JsonValue]()
        for name in chosen:
            size = cast(int, deciders[name].size)
            places = draw(st.lists(st.integers(0, min(size, 50) - 1), min_size=1, max_size=3, unique=True))
            conditions[name] = [deciders[name].at(place) for place in places]
        return When(entry, conditions) if conditions else entry

    for index in range(draw(st.integers(1, 3))):
        parameter = draw(inner)
        entries[f"p{index}"] = conditioned(parameter)
        if parameter.size is not None:
            deciders[f"p{index}"] = parameter
    grouped: dict[str, Entry] = {}
    for index in range(draw(st.integers(0, 2))):
        grouped[f"q{index}"] = conditioned(draw(inner))
    if grouped:
        # The conditions of a group and those inside it may exclude each other, which a space refuses, so only one of them has any.
        free = all(not isinstance(entry, When) for entry in grouped.values())
        entries["group"] = conditioned(grouped) if free else grouped
    return Space(dict(draw(st.permutations(list(entries.items())))))
