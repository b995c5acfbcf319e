"""The policies of successive halving pass the suite that every policy passes."""

from __future__ import annotations

from typing import ClassVar

from hopyard.policy import Policy
from hopyard.policy.conformance import PolicyConformance
from hopyard_policies.halving import AshaPolicy, AsyncHyperbandPolicy, BohbPolicy, HyperbandPolicy, ShaPolicy


class TestAsha(PolicyConformance):
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AshaPolicy()


class TestAshaWithManyRungs(PolicyConformance):
    max_position: ClassVar[int] = 8
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AshaPolicy(eta=2, ahead=0)


class TestAshaInfinite(PolicyConformance):
    max_position: ClassVar[int] = 7
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AshaPolicy(eta=2, infinite=True)


class TestAsyncHyperband(PolicyConformance):
    max_position: ClassVar[int] = 6
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return AsyncHyperbandPolicy(eta=2)


class TestSha(PolicyConformance):
    def make_policy(self) -> Policy:
        return ShaPolicy(eta=2)


class TestShaWithSmallBrackets(PolicyConformance):
    max_position: ClassVar[int] = 6

    def make_policy(self) -> Policy:
        return ShaPolicy(eta=2, brackets=[0, 1], width=3, ahead=0)


class TestHyperband(PolicyConformance):
    max_position: ClassVar[int] = 5

    def make_policy(self) -> Policy:
        return HyperbandPolicy(eta=2)


class TestBohb(PolicyConformance):
    def make_policy(self) -> Policy:
        return BohbPolicy()
