"""Test of the client written from docs/protocol.md on a real agent."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hopyard._runtime import snapshot_file
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.nodeagent.cluster import Cluster
from tests.integration.nodeagent.test_commands import begin

CLIENT = Path(__file__).parents[1] / "application" / "small_client.py"
KEY = RunKey(StreamId("e1"), "j1", 1, 0)
AGAIN = RunKey(StreamId("e1"), "j1", 2, 0)


def start(cluster: Cluster, key: RunKey, mistake: str = "", **fields: Any) -> None:
    code = {"client.py": CLIENT.read_text()}
    values = {"lr": 0.1, "seconds": 0.01}
    arguments = ("env", f"MISTAKE={mistake}", "python3", "client.py")
    begin(cluster, key, code, *arguments, hyperparameters=values, **fields)


async def test_it_is_suspended_and_goes_on_and_others_can_unpack_what_it_saved(
    cluster: Cluster, tmp_path: Path
) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    start(cluster, KEY, allowed=3, snapshot_at=[1])
    await scheduler.reported(KEY, 3)
    scheduler.decide("a", KEY, wire.DECISION_SUSPEND, 3)
    ended = await scheduler.ended(KEY)
    assert (ended.reason, ended.position, ended.snapshot.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 3, 3)
    assert [snapshot.position for snapshot in scheduler.snapshots(KEY)] == [1, 3]
    file = cluster.folder / "a" / "snapshots" / ended.snapshot.sha256
    snapshot_file.unpack(file, tmp_path / "state", ended.snapshot.sha256)
    assert math.isclose(float((tmp_path / "state" / "state.txt").read_text()), 0.3)
    start(cluster, AGAIN, allowed=9, until=5, completes=True, snapshot=ended.snapshot)
    assert (await scheduler.ended(AGAIN)).reason == common_pb2.RUN_END_REASON_UNTIL
    values = [report.metrics["value"] for key in (KEY, AGAIN) for report in scheduler.reports(key)]
    assert values == [0.1, 0.1 + 0.1, 0.1 + 0.1 + 0.1, 0.1 + 0.1 + 0.1 + 0.1, 0.1 + 0.1 + 0.1 + 0.1 + 0.1]


async def test_a_damaged_snapshot_is_nobodys_fault(cluster: Cluster) -> None:
    await cluster.agent()
    scheduler = cluster.scheduler
    start(cluster, KEY, until=1, completes=True)
    snapshot = (await scheduler.ended(KEY)).snapshot
    await scheduler.until(lambda: any(message.HasField("snapshot_stored") for message in scheduler.received[KEY]))
    del cluster.store.blobs[snapshot.sha256]
    file = cluster.folder / "a" / "snapshots" / snapshot.sha256
    file.chmod(0o600)
    file.write_bytes(file.read_bytes().replace(b"0.1", b"0.2"))
    start(cluster, AGAIN, snapshot=snapshot)
    ended = await scheduler.ended(AGAIN)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_LOST, common_pb2.FAILURE_CLASS_INFRASTRUCTURE)
    assert ended.snapshot_missing
    assert ended.message.startswith(f"snapshot {snapshot.sha256} cannot be got: store: ")
    assert scheduler.reports(AGAIN) == []


async def test_what_no_journal_can_hold_fails_its_run_and_harms_no_other(cluster: Cluster) -> None:
    await cluster.agent()
    start(cluster, KEY, "negative seconds", allowed=9)
    ended = await cluster.scheduler.ended(KEY)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert ended.message.startswith("report at position 1: found -1.0 seconds and 0 examples; allowed: 0 to ")
    start(cluster, AGAIN, until=1, completes=True)
    assert (await cluster.scheduler.ended(AGAIN)).reason == common_pb2.RUN_END_REASON_UNTIL
    assert len(cluster.scheduler.hellos["a"]) == 1
