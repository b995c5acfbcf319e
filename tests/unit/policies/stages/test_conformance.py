"""Conformance tests of `stage_tree`: without common prefixes, with common prefixes, and with tuners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from hopyard.policy import Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard.policy.testing import VirtualCluster, counting
from hopyard.space import Space
from hopyard_policies.stage_tree.policy import StageTreePolicy


@pytest.mark.nightly
class TestNothingInCommon(PolicyConformance):
    def make_policy(self) -> Policy:
        return StageTreePolicy()


@pytest.mark.nightly
class TestNotShared(PolicyConformance):
    def make_policy(self) -> Policy:
        return StageTreePolicy(share=False)


class _Shared(PolicyConformance):
    """A suite in which groups of three trials have a common prefix and every seventh trial equals the one before it."""

    __test__ = False

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        generator = changes.pop("generator", counting)
        return super().cluster(policy, generator=_alike(generator), **changes)


def _alike(
    generator: Callable[[int], Mapping[str, Any] | None],
) -> Callable[[int], Mapping[str, Any] | None]:
    def made(number: int) -> Mapping[str, Any] | None:
        given = generator(number)
        if given is None:
            return None
        x = int(given["x"])
        which = x - 1 if x % 7 == 0 else x
        change = {"multi_step": {"milestones": [1 + which % 3], "values": [0.1, which]}}
        return {"x": (which + 2) // 3, "lr": {"sequence": change}}

    return made


@pytest.mark.quick(
    merge=[
        *IN_PROCESSES,
        "test_survives_metrics_that_are_not_finite",
    ]
)
class TestShared(_Shared):
    __test__ = True

    def make_policy(self) -> Policy:
        return StageTreePolicy()


@pytest.mark.nightly
class TestSharedThreeAtATime(_Shared):
    __test__ = True

    def make_policy(self) -> Policy:
        return StageTreePolicy(width=3, save_every=1)


@pytest.mark.nightly
class TestSharedUnderSha(_Shared):
    __test__ = True
    leaves_jobs: ClassVar[bool] = True
    terminates: ClassVar[bool | None] = True

    def make_policy(self) -> Policy:
        return StageTreePolicy(tuner={"name": "sha", "eta": 2, "r": 1})


@pytest.mark.nightly
class TestSharedUnderAsha(_Shared):
    __test__ = True
    leaves_jobs: ClassVar[bool] = True

    def make_policy(self) -> Policy:
        return StageTreePolicy(tuner={"name": "asha", "eta": 2, "r": 1})


@pytest.mark.nightly
class TestSharedUnderMedian(_Shared):
    __test__ = True
    terminates: ClassVar[bool | None] = True

    def make_policy(self) -> Policy:
        return StageTreePolicy(tuner={"name": "median", "evaluation_boundary": 1, "least_jobs": 1})


@pytest.mark.nightly
class TestSharedInRounds(_Shared):
    __test__ = True

    def make_policy(self) -> Policy:
        return StageTreePolicy(tuner={"name": "default", "barrier": True})


@pytest.mark.nightly
class TestSharedUnderPbt(_Shared):
    __test__ = True
    terminates: ClassVar[bool | None] = True
    seeds: ClassVar[tuple[int, ...]] = (2, 10, 14)

    def make_policy(self) -> Policy:
        return StageTreePolicy(tuner={"name": "pbt", "population": 4, "interval": 2, "truncation": 0.5})

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        space = Space.from_dict({"x": {"int": [1, 40]}, "lr": {"choice": [0.1, 0.2, 0.4]}})
        return super().cluster(policy, **{"space": space, **changes})
