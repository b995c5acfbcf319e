"""The policy passes the suite: with the data on every node, and where each of them holds its own."""

from __future__ import annotations

from typing import Any

from hopyard.policy import Policy
from hopyard.policy.conformance import PolicyConformance
from hopyard.policy.testing import VirtualCluster
from hopyard_policies.mop import MopPolicy
from tests.unit.policies.mop.rig import placed

EVERYWHERE = placed([range(1, 25)] * 2, [range(1, 25)])


class Suite(PolicyConformance):
    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        return super().cluster(policy, **{"data": EVERYWHERE, **changes})


class TestLongest(Suite):
    def make_policy(self) -> Policy:
        return MopPolicy()


class TestRandomizedWithABarrier(Suite):
    def make_policy(self) -> Policy:
        return MopPolicy(scheduler="randomized", configurations=4, barrier=True)


del Suite, PolicyConformance
