"""Conformance tests of population based training: one population, several, and with members that are drawn again."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from hopyard.policy import Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard.policy.testing import VirtualCluster
from hopyard.space import Space
from hopyard_policies.pbt import PbtPolicy

SPACE = Space.from_dict({"x": {"int": [1, 40]}})


@pytest.mark.quick(merge=IN_PROCESSES)
class TestDefaults(PolicyConformance):
    def make_policy(self) -> Policy:
        return PbtPolicy()

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        return super().cluster(policy, **{"space": SPACE, **changes})


@pytest.mark.nightly
class TestSmallPopulations(PolicyConformance):
    max_position: ClassVar[int] = 6

    def make_policy(self) -> Policy:
        return PbtPolicy(population=3, interval=2, lag=2, truncation=0.5)

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        return super().cluster(policy, **{"space": SPACE, **changes})


@pytest.mark.nightly
class TestDrawnAgain(PolicyConformance):
    symmetric: ClassVar[bool] = False  # The threshold is not mirrored.

    def make_policy(self) -> Policy:
        return PbtPolicy(population=4, truncation=0.4, resample=1)

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        return super().cluster(policy, **{"space": SPACE, "kill_threshold": 0.2, **changes})


@pytest.mark.nightly
class TestReportsBetweenBoundaries(PolicyConformance):
    max_position: ClassVar[int] = 12

    def make_policy(self) -> Policy:
        return PbtPolicy(population=5, interval=5, truncation=0.3)

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        return super().cluster(policy, **{"space": SPACE, "interval": 3, "keep_latest": 1, **changes})
