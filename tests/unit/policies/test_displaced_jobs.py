"""Tests that jobs which a pause displaced start before new ones, under each policy that starts jobs in the order of the idle queue."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hopyard.policy import Policy
from hopyard.policy.testing import VirtualCluster
from hopyard_policies.bandit import BanditPolicy
from hopyard_policies.default import DefaultPolicy
from hopyard_policies.earlyterm import EarlyTermPolicy
from hopyard_policies.halving.asha import AshaPolicy
from hopyard_policies.halving.sha import ShaPolicy
from hopyard_policies.median import MedianPolicy
from hopyard_policies.pop import PopPolicy
from hopyard_policies.pop_plus import PopPlusPolicy

pytestmark = pytest.mark.quick

POLICIES: dict[str, Callable[[], Policy]] = {
    "default": DefaultPolicy,
    "rounds": lambda: DefaultPolicy(barrier=True, epoch=3),
    "elastic": lambda: DefaultPolicy(elastic={"profile": {1: 1.0}}),
    "bandit": BanditPolicy,
    "median": MedianPolicy,
    "earlyterm": EarlyTermPolicy,
    "pop": lambda: PopPolicy(evaluation_boundary=4),
    "pop_plus": PopPlusPolicy,
    "asha": lambda: AshaPolicy(eta=2, r=3),
    "sha": lambda: ShaPolicy(eta=2, r=3, width=6),
}


def starts(policy: Policy, change: Callable[[VirtualCluster], None]) -> list[str]:
    """Return the jobs in the order in which their runs began, on two slots; `change` is called during the second iteration."""
    cluster = VirtualCluster(policy, slots=2, jobs=6, max_position=6, target=0.9, snapshot_every=1)
    cluster.at(1.5, change, cluster)
    cluster.run()
    return [one.job for one in sorted(cluster.runs, key=lambda one: (one.began, one.slots))]


def pause(cluster: VirtualCluster) -> None:
    cluster.pause()
    cluster.at(5.0, cluster.resume)


def lose(cluster: VirtualCluster) -> None:
    for slot in ("m01", "m02"):
        cluster.lose_slot(slot)
        cluster.at(5.0, cluster.join_slot, slot)


@pytest.mark.parametrize("change", [pause, lose], ids=["pause", "restart"])
@pytest.mark.parametrize("name", POLICIES)
def test_the_two_jobs_that_trained_start_first(name: str, change: Callable[[VirtualCluster], None]) -> None:
    found = starts(POLICIES[name](), change)
    assert found[:2] == ["1", "2"]
    assert sorted(found[2:4]) == ["1", "2"]
    assert {"3", "4"} <= set(found[4:])
