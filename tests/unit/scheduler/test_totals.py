"""Tests that totals beyond int64 are converted for clients: a row that cannot be written would end the scheduler."""

from __future__ import annotations

from dataclasses import fields

import pytest

from hopyard_engine.core.actions.snapshots.store_quota import StoreUsage
from hopyard_engine.core.state.hop_counts import HopCounts
from hopyard_scheduler.converters import clamped, experiment_to_proto, use_to_proto
from tests.unit.core.rig import Rig
from tests.unit.scheduler.test_stream_import import PAYLOAD

pytestmark = pytest.mark.quick

MOST = 2**63 - 1


def test_a_total_is_clamped_to_int64() -> None:
    assert [clamped(n) for n in (2**80, MOST, 0, -5, -(2**80))] == [MOST, MOST, 0, -5, -(2**63)]


def test_an_experiment_with_totals_beyond_int64_is_converted() -> None:
    rig = Rig()
    rig.stream.hops = HopCounts(*[2**63 for _ in fields(HopCounts)])
    rig.stream.snapshots._size = 2**63
    experiment = rig.stream.experiments[next(iter(rig.stream.experiments))]
    experiment.payload = PAYLOAD
    message = experiment_to_proto(rig.stream, experiment, 1.0, None)
    assert message.snapshot_bytes == message.hops.direct == message.hops.stored_bytes == MOST


def test_a_use_of_the_store_beyond_int64_is_converted() -> None:
    use = StoreUsage(2**63, 2**63, 2**63, 3, 1.0, 2**63, 1.0)
    message = use_to_proto(use)
    assert message.quota_bytes == message.used_bytes == message.needed_bytes == message.next_bytes == MOST
