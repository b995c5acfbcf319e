"""Tests of process snapshots while CRIU, the agent, the image or the disk fails."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from hopyard._runtime.criu import procfs
from hopyard._runtime.criu.process_group import MOUNT
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.snapshots.process_images import MEMORY
from tests.damage import flip
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.integration.nodeagent.process_snapshots import (
    SCRIPT,
    begin,
    begun,
    comes,
    curve,
    home_of,
    images_of,
    meddling,
    nothing_left,
    suspended,
)
from tests.integration.nodeagent.test_process import start_agent
from tests.timing import HANG_SECONDS

pytestmark = pytest.mark.usefixtures("criu")


# CRIU probes kernel features on a process that it starts, and that process stays stopped when CRIU is killed.
KILL = 'tail -f $0 & $REAL "$@" & sleep 0.02; kill -9 $!; wait $!; exit 137'


def children(tool: str) -> list[int]:
    """Return the processes that `KILL` started beside CRIU and that still run."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.cmdline() == ["tail", "-f", tool]:
                found.append(process.pid)
    return found


async def test_a_killed_dump_leaves_the_job_running_and_is_tried_again(
    cluster: Cluster, tmp_path: Path, criu: Path
) -> None:
    tool = meddling(criu, tmp_path, "dump", 2, KILL)
    await cluster.agent("a", criu=tool)
    key = RunKey(StreamId("e1"), "j1", 1, 0)
    begin(cluster, key, SCRIPT, allowed=2)
    ended = await suspended(cluster, key, "a", 2)
    assert (ended.reason, ended.snapshot.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 3), ended.message
    assert "no snapshot at position 2: the dump failed: CRIU was killed by signal 9" in cluster.log("a", key)
    assert children(tool) == []
    second = RunKey(StreamId("e1"), "j1", 2, 0)
    begin(cluster, second, SCRIPT, until=4, allowed=4, snapshot=ended.snapshot)
    await cluster.scheduler.reported(second, 4)
    assert list(curve(cluster, key, second)) == [1, 2, 3, 4]


async def test_a_killed_restore_leaves_nothing_and_the_next_one_succeeds(
    cluster: Cluster, tmp_path: Path, criu: Path
) -> None:
    tool = meddling(criu, tmp_path, "restore", 1, '$REAL "$@" & sleep 0.05; kill -9 $!; wait $!; exit 137')
    _, snapshot = await begun(cluster, criu=tool)
    second, third = RunKey(StreamId("e1"), "j1", 2, 0), RunKey(StreamId("e1"), "j1", 3, 0)
    begin(cluster, second, SCRIPT, allowed=9, snapshot=snapshot)
    ended = await cluster.scheduler.ended(second)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_LOST, 2)
    assert "the process could not be restored" in ended.message
    await nothing_left(cluster)
    begin(cluster, third, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(third, 4)
    assert list(curve(cluster, third)) == [3, 4]


@pytest.mark.parametrize("call", ["dump", "restore"])
async def test_an_agent_that_is_killed_meanwhile_leaves_no_process(
    cluster: Cluster, tmp_path: Path, criu: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    # CRIU stops for ever when it is nearly done, while it controls the processes.
    script = tmp_path / "script"
    action = f'[ "$CRTOOLS_SCRIPT_ACTION" = post-{call} ]'
    script.write_text(f"#!/bin/sh\n{action} || exit 0\nkill -STOP $PPID\ntouch {tmp_path}/slow\n")
    script.chmod(0o755)
    slow = f'exec $REAL "$@" --action-script {script}'
    monkeypatch.setenv("HOPYARD_CRIU", meddling(criu, tmp_path, call, 1, slow))
    agent = await start_agent(cluster)
    key, last = RunKey(StreamId("e1"), "j1", 1, 0), RunKey(StreamId("e1"), "j1", 2, 0)
    begin(cluster, key, SCRIPT, allowed=2)
    await cluster.scheduler.reported(key, 2)
    cluster.scheduler.decide("a", key, wire.DECISION_SUSPEND, 2)
    snapshot: common_pb2.Snapshot | None = None
    if call == "restore":
        snapshot = (await cluster.scheduler.ended(key)).snapshot
        begin(cluster, last, SCRIPT, allowed=9, snapshot=snapshot)
    async with asyncio.timeout(HANG_SECONDS):
        while "slow" not in os.listdir(tmp_path):  # noqa: ASYNC110 (no event to wait for)
            await asyncio.sleep(0.02)
    home = home_of(cluster, "a")
    held = procfs.mounted(MOUNT, home)
    assert held
    agent.kill()
    await agent.wait()
    for pid in held:
        await gone(pid)
    assert not [pid for pid in procfs.mounted(MOUNT, home) if procfs.running(pid)]
    again = await start_agent(cluster, sessions=2)
    third = RunKey(StreamId("e1"), "j1", 3, 0)
    begin(cluster, third, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(third, 4)
    again.terminate()
    assert await again.wait() == 0
    assert not procfs.mounted(MOUNT, home)
    assert not images_of(home)


async def test_a_damaged_image_is_not_restored_and_another_copy_is(cluster: Cluster) -> None:
    _, snapshot = await begun(cluster)
    await cluster.scheduler.until(lambda: snapshot.sha256 in cluster.store.blobs)
    file = cluster.folder / "a" / "snapshots" / snapshot.sha256
    await comes(lambda: not file.is_symlink())
    flip(file)
    damaged = file.read_bytes()
    second = RunKey(StreamId("e1"), "j1", 2, 0)
    begin(cluster, second, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(second, 4)
    assert file.read_bytes() != damaged


async def test_what_a_killed_agent_had_in_memory_alone_is_not_lost(cluster: Cluster) -> None:
    _, snapshot = await begun(cluster)
    file, home = cluster.folder / "a" / "snapshots" / snapshot.sha256, home_of(cluster, "a")
    await comes(lambda: snapshot.sha256 in cluster.store.blobs and not file.is_symlink())
    await cluster.agents["a"].stop()
    cluster.store.blobs.clear()
    # As after the death of an agent immediately after the report that the snapshot was taken.
    memory = MEMORY / f"hopyard-{home}"
    memory.mkdir()
    shutil.move(file, memory / "some.packed")
    file.symlink_to(memory / "some.packed")
    await cluster.agent("a")
    assert not memory.exists()
    second = RunKey(StreamId("e1"), "j1", 2, 0)
    begin(cluster, second, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(second, 4)
    assert list(curve(cluster, second)) == [3, 4]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


FILL = "dd if=/dev/zero of=$IMAGES/filler bs=64k 2>/dev/null"


async def test_images_go_through_the_disk_when_memory_is_full(
    cluster: Cluster, tmp_path: Path, criu: Path, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopyard_nodeagent.snapshots.process_images.MEMORY", small)
    tool = meddling(criu, tmp_path, "dump", 1, FILL)
    _, snapshot = await begun(cluster, criu=tool)
    assert snapshot.position == 2
    assert any(name.startswith("meddled-") for name in os.listdir(tmp_path))
    await comes(lambda: not [name for *_, names in os.walk(small) for name in names])


async def test_a_full_disk_costs_the_snapshot_and_nothing_else(
    cluster: Cluster, tmp_path: Path, criu: Path, small: Path
) -> None:
    await cluster.agent("a", data=small / "a", image_memory=0)
    key = RunKey(StreamId("e1"), "j1", 1, 0)
    begin(cluster, key, SCRIPT, allowed=2)
    await cluster.scheduler.reported(key, 2)
    filler = _filled(small)
    ended = await suspended(cluster, key, "a", 2)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_SUSPENDED, 4)
    assert not ended.HasField("snapshot")
    assert (small / "a" / "logs" / "jobs" / "e1" / "j1.log").read_text().count("hopyard: no snapshot at position") == 3
    filler.unlink()
    second = RunKey(StreamId("e1"), "j1", 2, 0)
    begin(cluster, second, SCRIPT, allowed=2)
    snapshot = (await suspended(cluster, second, "a", 2)).snapshot
    assert snapshot.position == 2
    # There is no room to restore a snapshot either; it stays intact.
    filler = _filled(small)
    third, fourth = RunKey(StreamId("e1"), "j1", 3, 0), RunKey(StreamId("e1"), "j1", 4, 0)
    begin(cluster, third, SCRIPT, allowed=9, snapshot=snapshot)
    ended = await cluster.scheduler.ended(third)
    assert (ended.reason, ended.position) == (common_pb2.RUN_END_REASON_LOST, 2)
    assert "No space left on device" in ended.message
    filler.unlink()
    begin(cluster, fourth, SCRIPT, until=4, allowed=4, snapshot=snapshot)
    await cluster.scheduler.reported(fourth, 4)
    assert list(curve(cluster, fourth)) == [3, 4]


def _filled(disk: Path) -> Path:
    """Fill the disk up to 1 MiB of free space and return the file that does it."""
    filler = disk / "filler"
    filler.write_bytes(bytes(shutil.disk_usage(disk).free - (1 << 20)))
    return filler
