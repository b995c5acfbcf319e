"""Conformance tests of the default policy, with and without jobs created ahead and barriers."""

from __future__ import annotations

import pytest

from hopyard.policy import Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard_policies.default import DefaultPolicy


@pytest.mark.quick(merge=IN_PROCESSES)
class TestGreedy(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy()


@pytest.mark.nightly
class TestGreedyWithoutAhead(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy(ahead=0)


@pytest.mark.nightly
class TestBarrier(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy(barrier=True)


@pytest.mark.nightly
class TestBarrierOfTwoEpochsAndThreeJobs(PolicyConformance):
    def make_policy(self) -> Policy:
        return DefaultPolicy(barrier=True, epoch=2, width=3, ahead=0)
