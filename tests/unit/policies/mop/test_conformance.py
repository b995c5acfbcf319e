"""Conformance tests of `mop`, with all data on every node and with different partitions on each node."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from hopyard.policy import Policy
from hopyard.policy.conformance import IN_PROCESSES, PolicyConformance
from hopyard.policy.testing import VirtualCluster
from hopyard.policy.vocabulary import Ask, Predict
from hopyard.space import Space
from hopyard_policies.mop import MopPolicy
from tests.unit.policies.mop.rig import placed, planned

EVERYWHERE = placed([range(1, 25)] * 2, [range(1, 25)])


class Suite(PolicyConformance):
    terminates: ClassVar[bool | None] = False  # It terminates jobs only for its tuner.

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        return super().cluster(policy, **{"data": EVERYWHERE, **changes})


@pytest.mark.quick(
    merge=[
        *IN_PROCESSES,
        "test_changes_nothing_that_it_was_given",
        "test_commands_are_legal",
        "test_experiment_drains",
        "test_metric_modes",
        "test_no_slot_idles_forever_while_a_job_waits",
        "test_random_schedules",
        "test_survives_metrics_that_are_not_finite",
    ]
)
class TestLongest(Suite):
    def make_policy(self) -> Policy:
        return MopPolicy()


@pytest.mark.nightly
class TestRandomizedWithABarrier(Suite):
    def make_policy(self) -> Policy:
        return MopPolicy(scheduler="randomized", configurations=4, barrier=True)


@pytest.mark.nightly
class TestExactWithPilots(Suite):
    def make_policy(self) -> Policy:
        return MopPolicy(scheduler="milp", pilot=True)

    def respond(self, question: Predict | Ask) -> object:
        return planned(question)


@pytest.mark.nightly
class TestExactThatIsNeverAnswered(Suite):
    def make_policy(self) -> Policy:
        return MopPolicy(scheduler="milp", configurations=4)


@pytest.mark.nightly
class TestUnderAsha(Suite):
    leaves_jobs: ClassVar[bool] = True
    max_position: ClassVar[int] = 8

    def make_policy(self) -> Policy:
        return MopPolicy(tuner={"name": "asha", "eta": 2, "r": 1})


@pytest.mark.nightly
class TestUnderPbtWithABarrier(Suite):
    terminates: ClassVar[bool | None] = True
    max_position: ClassVar[int] = 6

    def make_policy(self) -> Policy:
        return MopPolicy(tuner={"name": "pbt", "population": 4, "interval": 1, "truncation": 0.5}, barrier=True)

    def cluster(self, policy: Policy | None = None, **changes: Any) -> VirtualCluster:
        return super().cluster(policy, **{"space": Space.from_dict({"x": {"int": [1, 40]}}), **changes})


del Suite, PolicyConformance
