"""Conformance tests of the median stopping rule, with boundaries that jobs reach, never reach, and pass without a report."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from hopyard.policy import Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard.policy.testing import VirtualCluster
from hopyard_policies.median import MedianPolicy


@pytest.mark.quick(merge=IN_PROCESSES)
class TestDefaults(PolicyConformance):
    max_position: ClassVar[int] = 25

    def make_policy(self) -> Policy:
        return MedianPolicy()


@pytest.mark.nightly
class TestEachUnit(PolicyConformance):
    def make_policy(self) -> Policy:
        return MedianPolicy(evaluation_boundary=1, least_jobs=1, ahead=0)


@pytest.mark.nightly
class TestReportsBetweenBoundaries(PolicyConformance):
    max_position: ClassVar[int] = 12

    def make_policy(self) -> Policy:
        return MedianPolicy(evaluation_boundary=5, grace=6, least_jobs=2)

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        return super().cluster(policy, **{"interval": 3, **changes})
