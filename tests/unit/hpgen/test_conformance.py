"""Tests that the conformance suite passes the built-in generators and rejects broken ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import pytest

from hopyard.generator import Generator
from hopyard.generator.conformance import FINITE, MIXED, GeneratorConformance, MakeGenerator
from hopyard.space import Space
from hopyard_hpgen.generators.grid import GridGenerator
from hopyard_hpgen.generators.random import RandomGenerator
from hopyard_hpgen.generators.sobol import SobolGenerator
from tests.unit.hpgen import broken

pytestmark = pytest.mark.quick


@pytest.mark.quick
class TestRandom(GeneratorConformance):
    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return RandomGenerator


@pytest.mark.quick
class TestRandomUntilExhausted(TestRandom):
    spaces: ClassVar[Sequence[Space]] = (FINITE,)
    job_count: ClassVar[int] = 40


@pytest.mark.quick
class TestGrid(GeneratorConformance):
    seeds_matter: ClassVar[bool] = False

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return GridGenerator


@pytest.mark.quick
class TestShuffledGrid(GeneratorConformance):
    job_count: ClassVar[int] = 40

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return partial(GridGenerator, shuffle=True)


@pytest.mark.quick(merge=["test_different_seeds_propose_differently", "test_the_same_calls_rebuild_the_state"])
class TestSobol(GeneratorConformance):
    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return SobolGenerator


@pytest.mark.quick
class TestUnbroken(GeneratorConformance):
    """The conformance suite on the base class of the broken generators, which breaks nothing."""

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return broken.Wrapped


@pytest.mark.parametrize(
    ("generator", "caught_by"),
    [
        (broken.Nondeterministic, "test_equal_seeds_propose_equally"),
        (broken.Nondeterministic, "test_the_same_calls_rebuild_the_state"),
        (broken.OutsideTheSpace, "test_values_are_inside_the_space"),
        (broken.ForgetsAName, "test_values_are_inside_the_space"),
        (broken.NotJson, "test_values_are_json"),
        (broken.ForgetsExhaustion, "test_exhaustion_is_final"),
        (broken.IgnoresItsSeed, "test_different_seeds_propose_differently"),
        (broken.ReadsJobIds, "test_jobs_ids_do_not_influence_values"),
        (broken.SharesState, "test_instances_share_nothing"),
        (broken.HandsOutItsMemory, "test_callers_may_change_what_they_get"),
        (broken.OverstatesItsSize, "test_exhaustion_is_final"),
        (broken.LearnsInSecret, "test_report_order_as_claimed"),
        (broken.ReadsInSecret, "test_what_it_does_not_read_plays_no_part"),
        (broken.IgnoresConditions, "test_values_are_inside_the_space"),
        (broken.IgnoresConstraints, "test_values_are_inside_the_space"),
    ],
)
def test_broken_generators_are_rejected(generator: type[Generator], caught_by: str) -> None:
    with pytest.raises(AssertionError):
        getattr(GeneratorConformance(), caught_by)(generator)


def test_a_generator_that_stumbles_over_nan_is_rejected() -> None:
    with pytest.raises(ValueError, match="NaN"):
        GeneratorConformance().test_strange_reports_are_survived(broken.StumblesOverNan)


def test_the_suites_spaces_cover_every_kind() -> None:
    assert FINITE.size == 24
    assert MIXED.size is None
    assert MIXED.grid_size == 4 * 3 * 4 * 3 * 4
