"""Conformance tests of the policies of successive halving."""

from __future__ import annotations

from typing import ClassVar

import pytest

from hopyard.policy import Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard_policies.halving import AshaPolicy, AsyncHyperbandPolicy, BohbPolicy, HyperbandPolicy, ShaPolicy


@pytest.mark.quick(merge=IN_PROCESSES)
class TestAsha(PolicyConformance):
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AshaPolicy()


@pytest.mark.nightly
class TestAshaWithManyRungs(PolicyConformance):
    max_position: ClassVar[int] = 8
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AshaPolicy(eta=2, ahead=0)


@pytest.mark.nightly
class TestAshaInfinite(PolicyConformance):
    max_position: ClassVar[int] = 7
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AshaPolicy(eta=2, infinite=True)


@pytest.mark.quick(merge=IN_PROCESSES)
class TestAsyncHyperband(PolicyConformance):
    max_position: ClassVar[int] = 6
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AsyncHyperbandPolicy(eta=2)


@pytest.mark.quick(merge=IN_PROCESSES)
class TestSha(PolicyConformance):
    def make_policy(self) -> Policy:
        return ShaPolicy(eta=2)


@pytest.mark.nightly
class TestShaWithSmallBrackets(PolicyConformance):
    max_position: ClassVar[int] = 6

    def make_policy(self) -> Policy:
        return ShaPolicy(eta=2, brackets=[0, 1], width=3, ahead=0)


@pytest.mark.quick(merge=[*IN_PROCESSES, "test_commands_are_legal"])
class TestHyperband(PolicyConformance):
    max_position: ClassVar[int] = 5

    def make_policy(self) -> Policy:
        return HyperbandPolicy(eta=2)


@pytest.mark.quick(merge=IN_PROCESSES)
class TestBohb(PolicyConformance):
    def make_policy(self) -> Policy:
        return BohbPolicy()
