"""The conformance suite on Optuna's samplers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import pytest

from hopyard.generator.conformance import CONSTRAINED, MIXED, NESTED, GeneratorConformance, MakeGenerator
from hopyard.space import Space

pytest.importorskip("optuna", reason="the extra optuna is not installed: pip install './hopyard[optuna]'")

from hopyard_hpgen.generators.optuna_samplers import CmaEsGenerator, GpGenerator, Nsga2Generator, TpeGenerator


class TestTpe(GeneratorConformance):
    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return partial(TpeGenerator, n_startup_trials=3)


@pytest.mark.nightly
class TestTpeWithAShortHistory(GeneratorConformance):
    """The conformance suite on TPE with a history so short that the generator starts a new study several times."""

    spaces: ClassVar[Sequence[Space]] = (NESTED,)
    job_count: ClassVar[int] = 90

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return partial(TpeGenerator, n_startup_trials=3, n_ei_candidates=4, history=20)


@pytest.mark.nightly
class TestGp(GeneratorConformance):
    spaces: ClassVar[Sequence[Space]] = (CONSTRAINED,)
    job_count: ClassVar[int] = 6

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        pytest.importorskip("torch", reason="torch is not installed: pip install './hopyard[torch]'")
        return partial(GpGenerator, n_startup_trials=1)


class TestCmaEs(GeneratorConformance):
    spaces: ClassVar[Sequence[Space]] = (MIXED, NESTED)

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return partial(CmaEsGenerator, popsize=5)


@pytest.mark.nightly
class TestNsga2(GeneratorConformance):
    job_count: ClassVar[int] = 30

    @pytest.fixture
    def make_generator(self) -> MakeGenerator:
        return partial(Nsga2Generator, population_size=4)
