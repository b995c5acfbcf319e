"""The default policy passes the suite, in all its forms."""

from __future__ import annotations

from hopyard.policy import Policy
from hopyard.policy.conformance import PolicyConformance
from hopyard_policies.default import DefaultPolicy


class TestGreedy(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy()


class TestGreedyWithoutAhead(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy(ahead=0)


class TestBarrier(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy(barrier=True)


class TestBarrierOfTwoEpochsAndThreeJobs(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy(barrier=True, epoch=2, width=3, ahead=0)
