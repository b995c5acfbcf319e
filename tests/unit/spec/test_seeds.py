"""Tests of the training seed of a configuration."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard.sequences import MultiStep
from hopyard.space import Space
from hopyard.spec import configuration_seed
from tests.unit.space.strategies import SEEDS, spaces

pytestmark = pytest.mark.quick


def test_pinned() -> None:
    # A change of these values would change the training of all recorded experiments.
    assert configuration_seed(0, {}) == 1979677395708040514
    assert configuration_seed(7, {"lr": 0.1, "batch_size": 32}) == 8092363316719419276


@pytest.mark.merge
@given(spaces, SEEDS, st.integers(0, 50))
def test_it_depends_on_values_alone(space: Space, seed: int, ordinal: int) -> None:
    configuration = space.sample_at(seed, ordinal)
    found = configuration_seed(seed, configuration)
    assert 0 <= found < 2**63
    assert configuration_seed(seed, dict(reversed(list(configuration.items())))) == found
    assert configuration_seed(seed, json.loads(json.dumps(configuration))) == found
    assert configuration_seed(seed + 1, configuration) != found
    assert configuration_seed(seed, {**configuration, "another": 1}) != found


def test_a_number_is_its_value_whatever_its_type() -> None:
    assert configuration_seed(1, {"a": 1}) == configuration_seed(1, {"a": 1.0})
    assert configuration_seed(1, {"a": 1}) != configuration_seed(1, {"a": True})


def test_configurations_that_begin_alike_train_with_the_same_seed() -> None:
    step = MultiStep(0.1, (30,), 0.1).written()
    assert configuration_seed(7, {"lr": step}) == configuration_seed(7, {"lr": 0.1})
    assert configuration_seed(7, {"lr": step}) != configuration_seed(7, {"lr": 0.01})
