"""Tests of a run whose snapshot is damaged on its node: another copy replaces it in the same run, else the run is lost at once."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.damage import flip, in_turn, replace_by_link, replace_by_pipe
from tests.integration.nodeagent.cluster import Cluster
from tests.integration.nodeagent.test_commands import SCRIPT, begin

KEY = RunKey(StreamId("e1"), "j1", 1, 0)
AGAIN = RunKey(StreamId("e1"), "j1", 2, 0)


def _file(folder: Path) -> Path:
    return next(folder.rglob("walk.json"))


def _move_behind_link(path: Path) -> None:
    snapshots = next(parent for parent in path.parents if parent.name == "snapshots")
    replace_by_link(path, snapshots.parent / "elsewhere")


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": lambda folder: flip(_file(folder)),
    "a truncated file": lambda folder: os.truncate(_file(folder), 1),
    "a missing file": lambda folder: _file(folder).unlink(),
    "an added file": lambda folder: (_file(folder).parent / "more").touch(),
    "a link in place of a file": lambda folder: _move_behind_link(_file(folder)),
    "a pipe in place of a file": lambda folder: replace_by_pipe(_file(folder)),
    "a link in place of the folder": _move_behind_link,
    "a pipe in place of the folder": replace_by_pipe,
    "a file in place of the folder": in_turn(
        lambda folder: shutil.rmtree(folder), lambda folder: folder.write_bytes(b"x")
    ),
    "an empty folder": in_turn(lambda folder: shutil.rmtree(folder), lambda folder: folder.mkdir()),
    "nothing": shutil.rmtree,
}


async def saved(cluster: Cluster) -> tuple[common_pb2.Snapshot, Path]:
    """Train a job to position 2; return its snapshot, which the store has too, and the snapshot's folder on the node."""
    await cluster.agent()
    cluster.start(KEY, until=2, allowed=9, completes=True)
    snapshot = (await cluster.scheduler.ended(KEY)).snapshot
    await cluster.scheduler.until(
        lambda: any(message.HasField("snapshot_stored") for message in cluster.scheduler.received[KEY])
    )
    return snapshot, cluster.folder / "a" / "snapshots" / snapshot.sha256


@pytest.mark.parametrize("kind", DAMAGES)
async def test_a_damaged_snapshot_is_replaced_from_the_store_in_the_same_run(cluster: Cluster, kind: str) -> None:
    snapshot, folder = await saved(cluster)
    DAMAGES[kind](folder)
    cluster.start(AGAIN, until=4, allowed=9, completes=True, snapshot=snapshot)
    ended = await cluster.scheduler.ended(AGAIN)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_UNTIL, 4), ended.message
    assert [report.position for report in cluster.scheduler.reports(AGAIN)] == [3, 4]
    if "in place of the folder" in kind and "link" in kind:
        assert (folder.parent.parent / "elsewhere").is_dir(), "the target of a link is not deleted"


@pytest.mark.parametrize("kind", DAMAGES)
async def test_a_damaged_snapshot_without_another_copy_loses_the_run_at_once(cluster: Cluster, kind: str) -> None:
    snapshot, folder = await saved(cluster)
    DAMAGES[kind](folder)
    cluster.store.lose(snapshot.sha256)
    cluster.start(AGAIN, until=4, allowed=9, completes=True, snapshot=snapshot)
    ended = await cluster.scheduler.ended(AGAIN)
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_LOST, common_pb2.FAILURE_CLASS_INFRASTRUCTURE)
    assert ended.snapshot_missing
    assert ended.message.startswith(f"snapshot {snapshot.sha256} cannot be got: store: ")
    assert folder.name not in await asyncio.to_thread(os.listdir, folder.parent)
    assert cluster.scheduler.reports(AGAIN) == []


async def test_a_failure_stays_one_if_the_snapshot_of_the_start_was_dropped_meanwhile(cluster: Cluster) -> None:
    snapshot, folder = await saved(cluster)
    scheduler = cluster.scheduler
    await scheduler.until(lambda: not cluster.agents["a"].hello(0).runs)
    cluster.start(AGAIN, hyperparameters={"fail": "train", "at": 4}, allowed=3, snapshot=snapshot)
    await scheduler.reported(AGAIN, 3)
    scheduler.say("a", forget_snapshots=wire.ForgetSnapshots(sha256=[snapshot.sha256]))
    scheduler.decide("a", AGAIN, wire.DECISION_CONTINUE, 3, allowed=9)
    ended = await scheduler.ended(AGAIN)
    assert ended.message.startswith("train at position 3: ValueError: a bad iteration")
    assert (ended.reason, ended.failure) == (common_pb2.RUN_END_REASON_FAILED, common_pb2.FAILURE_CLASS_USER_CODE)
    assert not folder.exists()


async def test_another_node_without_an_undamaged_copy_is_named(cluster: Cluster) -> None:
    snapshot, folder = await saved(cluster)
    await cluster.agent("b")
    flip(_file(folder))
    cluster.store.lose(snapshot.sha256)
    source = cluster.agents["a"].address
    cluster.start(AGAIN, node="b", until=4, allowed=9, completes=True, snapshot=snapshot, snapshot_peers=[source])
    ended = await cluster.scheduler.ended(AGAIN)
    assert (ended.snapshot_missing, list(ended.snapshot_missing_at)) == (True, [source])


async def test_a_script_that_cannot_load_its_damaged_snapshot_is_executed_again(cluster: Cluster) -> None:
    await cluster.agent()
    begin(cluster, KEY, {"train.py": SCRIPT}, "python", "train.py", "{step}")
    cluster.scheduler.decide("a", KEY, wire.DECISION_SUSPEND, (await cluster.scheduler.reported(KEY, 1)).position)
    snapshot = (await cluster.scheduler.ended(KEY)).snapshot
    await cluster.scheduler.until(lambda: snapshot.sha256 in cluster.store.blobs)
    flip(cluster.folder / "a" / "snapshots" / snapshot.sha256)
    begin(
        cluster,
        AGAIN,
        {"train.py": SCRIPT},
        "python",
        "train.py",
        "{step}",
        until=4,
        allowed=9,
        completes=True,
        snapshot=snapshot,
    )
    ended = await cluster.scheduler.ended(AGAIN)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_UNTIL, 4), ended.message
