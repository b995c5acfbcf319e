"""The policy `stage_tree` passes the suite: alone, with shared prefixes, and under tuners."""

from __future__ import annotations

import math
from typing import ClassVar

from hopyard.policy import Policy
from hopyard.policy.conformance import PolicyConformance
from hopyard.policy.testing import Step
from hopyard.policy.vocabulary import Hyperparameters
from hopyard_policies.stages.policy import StageTreePolicy


class TestNothingInCommon(PolicyConformance):
    def make_policy(self) -> Policy:
        return StageTreePolicy()


class TestNotShared(PolicyConformance):
    def make_policy(self) -> Policy:
        return StageTreePolicy(share=False)
