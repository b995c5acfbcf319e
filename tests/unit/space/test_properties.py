"""Property-based tests of every parameter and every space."""

import json
import random

from hypothesis import assume, given
from hypothesis import strategies as st

from hopyard.space import Parameter, Space, canonical_json, parameter_from_data
from tests.unit.space.strategies import SEEDS, countable, names, parameters, spaces


@given(parameters, SEEDS)
def test_samples_are_values(parameter: Parameter, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        assert parameter.contains(parameter.sample(rng))


@given(parameters)
def test_the_written_form_gives_the_parameter_back(parameter: Parameter) -> None:
    written = json.loads(json.dumps(parameter.to_data()))
    # The written form of a constant that is a mapping must not look like a parameter.
    assert parameter_from_data(written) == parameter


@given(parameters)
def test_grid_points_are_different_values(parameter: Parameter) -> None:
    assume(parameter.size is not None or "count" in str(parameter.to_data()))
    grid = list(parameter.grid())
    assert all(parameter.contains(value) for value in grid)
    assert len({canonical_json(value) for value in grid}) == len(grid)
    assert parameter.size is None or len(grid) <= parameter.size


@given(countable)
def test_a_countable_parameter_has_as_many_values_as_it_says(parameter: Parameter) -> None:
    assert parameter.size is not None
    indices = range(min(parameter.size, 200))
    values = {canonical_json(parameter.at(index)) for index in indices}
    assert len(values) == len(indices)
    assert all(parameter.contains(parameter.at(index)) for index in (0, parameter.size - 1))


@given(spaces, SEEDS, st.integers(0, 1000))
def test_samples_are_inside_and_repeatable(space: Space, seed: int, ordinal: int) -> None:
    assert space.contains(space.sample_at(seed, ordinal))
    assert space.sample_at(seed, ordinal) == space.sample_at(seed, ordinal)
    assert space.sample(random.Random(seed)) == space.sample(random.Random(seed))


@given(spaces, names, parameters, SEEDS)
def test_adding_a_parameter_leaves_the_others_alone(space: Space, name: str, parameter: Parameter, seed: int) -> None:
    assume(name not in space)
    larger = Space({name: parameter, **space})
    for one, two in (
        (space.sample_at(seed, 3), larger.sample_at(seed, 3)),
        (space.sample(random.Random(seed)), larger.sample(random.Random(seed))),
    ):
        two.pop(name)
        assert one == two


@given(spaces)
def test_the_written_form_gives_the_space_back(space: Space) -> None:
    back = Space.from_dict(json.loads(json.dumps(space.to_dict())))
    assert back == space
    assert hash(back) == hash(space)
    assert list(back) == list(space)


@given(st.dictionaries(names, countable, min_size=1, max_size=3).map(Space))
def test_grids_are_in_odometer_order(space: Space) -> None:
    assume(space.grid_size <= 400)
    points = list(space.grid())
    wheels = {name: [canonical_json(value) for value in space[name].grid()] for name in space}
    places = [tuple(wheels[name].index(canonical_json(point[name])) for name in space) for point in points]
    assert places == sorted(set(places))
    assert len(points) == space.grid_size


@given(st.dictionaries(names, countable, min_size=1, max_size=3).map(Space))
def test_every_configuration_has_one_number(space: Space) -> None:
    assert space.size is not None
    assume(space.size <= 400)
    found = [canonical_json(space.at(index)) for index in range(space.size)]
    assert len(set(found)) == space.size
