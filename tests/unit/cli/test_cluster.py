"""When a service is given up."""

from __future__ import annotations

from pathlib import Path

from hopyard.cli.cluster import Crashes
from hopyard.cli.session import default_slots
from hopyard.client.embedded import agent_service


def test_crashes_count_for_a_while() -> None:
    crashes = Crashes(limit=3, seconds=60.0)
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
