"""Tests of the policy versions that are recorded in journals."""

from __future__ import annotations

from typing import Any

import pytest

from hopyard.policy import Policy, capabilities_of
from hopyard.policy.factory import new_policy
from hopyard_policies.halving.asha import AshaPolicy

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("name", "parameters", "version"),
    [
        *((name, {}, "2") for name in ("asha", "async_hyperband", "sha", "hyperband", "bohb")),
        ("bandit", {}, "2"),
        ("median", {}, "2"),
        ("pop", {}, "2"),
        ("pop_plus", {}, "2"),
        ("stage_tree", {}, "1 (tuner DefaultPolicy 1)"),
        ("stage_tree", {"tuner": {"name": "asha", "r": 1}}, "1 (tuner AshaPolicy 7)"),
        ("mop", {}, "1 (tuner DefaultPolicy 1)"),
        ("mop", {"tuner": "asha"}, "1 (tuner AshaPolicy 7)"),
    ],
)
def test_the_version_of_a_policy_contains_that_of_its_tuner(
    name: str, parameters: dict[str, Any], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "tuner" in parameters:
        monkeypatch.setattr(AshaPolicy, "version", "7")
    assert capabilities_of(new_policy(name, parameters)).version == version


def test_a_policy_that_says_nothing_has_version_1() -> None:
    assert Policy.version == "1"
