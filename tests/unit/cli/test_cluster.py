"""Tests of the local cluster and of `hopyard gc`: crashes of services, numbers of slots, snapshot quotas and evictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.cli.commands.cluster import garbage
from hopyard.cli.commands.cluster.supervisor import CrashCounter
from hopyard.cli.commands.experiments.run_session import default_slots
from hopyard.client.local_cluster.embedded import agent_service
from hopyard.client.types import StoreUse
from hopyard.spec.units import size_or_none

pytestmark = pytest.mark.quick


def test_crashes_count_for_a_while() -> None:
    crashes = CrashCounter(limit=3, seconds=60.0)
    assert [crashes.died(at) for at in (0.0, 10.0)] == [1, 2]
    assert not crashes.too_many
    assert crashes.died(65.0) == 2
    assert not crashes.too_many
    assert crashes.died(66.0) == 3
    assert crashes.too_many


def test_slots_are_what_is_asked_for_or_what_the_cpus_hold() -> None:
    assert default_slots(7, 1) == 7
    assert default_slots(None, 10_000) == 1
    assert default_slots(None, 1) >= 1


def test_an_agents_snapshot_quota_is_passed_on() -> None:
    bounded = agent_service(Path("d"), "h:1", 2, "n", snapshot_quota="5GiB").arguments
    assert bounded[-2:] == ("--snapshot-quota", "5GiB")
    assert "--snapshot-quota" not in agent_service(Path("d"), "h:1", 2, "n").arguments


def test_a_quota_may_be_taken_away() -> None:
    assert [size_or_none(text) for text in ("none", "None", "2KiB")] == [0, 0, 2048]
    with pytest.raises(ValueError, match=r'such as 500MB.*found "a lot"; none takes the limit away'):
        size_or_none("a lot")


def test_gc_says_how_full_the_store_is_and_what_an_eviction_would_cost(capsys: pytest.CaptureFixture[str]) -> None:
    garbage._show_store(StoreUse(None, 0, 0, 0, 0.0, 0, 0.0))
    assert capsys.readouterr().out == ""
    garbage._show_store(StoreUse(None, 3072, 3072, 0, 0.0, 0, 0.0))
    assert (
        capsys.readouterr().out == "snapshots in the store: 3.0 KiB without a quota; 3.0 KiB of them are needed now\n"
    )
    garbage._show_store(StoreUse(2048, 5120, 3072, 4, 90.0, 512, 2.0))
    assert capsys.readouterr().out.splitlines() == [
        "snapshots in the store: 5.0 KiB of a quota of 2.0 KiB; 3.0 KiB of them are needed now",
        "recreating the other 4 (2.0 KiB) would take 1m 30s of training; the next to be evicted (512 B): 2s",
        "needed snapshots exceed the quota by 1.0 KiB; they are kept until nothing needs them",
    ]
