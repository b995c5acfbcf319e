"""Conformance tests of the policies with elastic jobs."""

from __future__ import annotations

from typing import ClassVar

import pytest

from hopyard.policy import Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard.policy.vocabulary import Ask, Predict
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.halving import AshaPolicy
from hopyard_policies.pop import PopPolicy
from hopyard_policies.pop_plus import PopPlusPolicy
from tests.unit.policies.test_pop import foreseen

ELASTIC = {"profile": {1: 1.0, 2: 0.52, 4: 0.3}, "pause": 0}


@pytest.mark.quick(merge=IN_PROCESSES)
class TestDefault(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy(elastic=ELASTIC)


@pytest.mark.nightly
class TestAsha(PolicyConformance):
    max_position: ClassVar[int] = 8
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AshaPolicy(eta=2, elastic=ELASTIC)


@pytest.mark.nightly
class TestPop(PolicyConformance):
    symmetric: ClassVar = False  # Targets of its predictions can be negative.
    max_position: ClassVar = 6

    def make_policy(self) -> Policy:
        return PopPolicy(evaluation_boundary=2, elastic=ELASTIC)

    def respond(self, question: Predict | Ask) -> object:
        return foreseen(question)


@pytest.mark.nightly
class TestPopPlus(PolicyConformance):
    symmetric: ClassVar = False
    terminates: ClassVar = False

    def make_policy(self) -> Policy:
        return PopPlusPolicy(first_look=1, elastic=ELASTIC)


@pytest.mark.nightly
class TestPopPlusThatMeasures(PolicyConformance):
    symmetric: ClassVar = False
    terminates: ClassVar = False

    def make_policy(self) -> Policy:
        return PopPlusPolicy(first_look=1, elastic={"pause": 0})


@pytest.mark.nightly
class TestDefaultThatMeasures(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy(elastic={"pause": 0})


@pytest.mark.nightly
class TestAshaThatMeasures(PolicyConformance):
    max_position: ClassVar[int] = 8
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AshaPolicy(eta=2, elastic={"pause": 0})
