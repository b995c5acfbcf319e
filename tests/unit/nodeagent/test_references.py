"""Tests of the records of snapshots on a node: snapshots of another cluster are neither announced, used as room, nor deleted."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from hopyard_nodeagent.snapshots.disk import Snapshots
from hopyard_nodeagent.snapshots.references import SnapshotReferences
from tests.access import AnyTicket
from tests.unit.nodeagent.fakes import ScriptedStore

pytestmark = pytest.mark.quick

OURS, THEIRS, SHARED, UNKNOWN = (letter * 64 for letter in "abcd")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Folders of snapshots and their records: one of cluster one, one of cluster two, one of both, and one without a record."""
    snapshots, needs = tmp_path / "snapshots", tmp_path / "needs"
    snapshots.mkdir()
    needs.mkdir()
    for sha256 in (OURS, THEIRS, SHARED, UNKNOWN):
        (snapshots / sha256).write_bytes(b"state")
        os.utime(snapshots / sha256, (0, 0))
    one, two = SnapshotReferences(needs, "one"), SnapshotReferences(needs, "two")
    one.add(OURS, "digits")
    two.add(THEIRS, "digits")
    one.add(SHARED, "digits")
    two.add(SHARED, "moons")
    return snapshots, needs


def agent(folders: tuple[Path, Path], cluster: str = "one") -> Snapshots:
    """Return the snapshots as an agent of a cluster that starts now sees them."""
    snapshots, needs = folders
    return Snapshots(snapshots, ScriptedStore(), SnapshotReferences(needs, cluster), tickets=AnyTicket())


async def test_snapshots_of_another_cluster_are_not_announced_and_named_once_in_the_log(
    folders: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    snapshots = agent(folders)
    assert snapshots.hashes() == [OURS, SHARED, UNKNOWN]
    assert sorted(one.sha256 for one in await snapshots.idle(0.0)) == [OURS, SHARED, UNKNOWN]
    assert [one.sha256 for one in await snapshots.named([OURS, THEIRS])] == [OURS]
    (said,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert said.startswith(f"1 snapshots in {folders[0]} belong to cluster two, this agent to cluster one")
    await snapshots.close()


async def test_only_the_experiments_of_the_cluster_need_a_snapshot(folders: tuple[Path, Path]) -> None:
    snapshots = agent(folders)
    assert [snapshots.experiments(one) for one in (OURS, THEIRS, SHARED, UNKNOWN)] == [["digits"], [], ["digits"], []]
    await snapshots.close()


async def test_snapshots_of_another_cluster_are_not_deleted(folders: tuple[Path, Path]) -> None:
    snapshots = agent(folders)
    snapshots.forget([OURS, THEIRS, SHARED, UNKNOWN])
    await snapshots.close()
    assert sorted(path.name for path in folders[0].iterdir()) == [THEIRS, SHARED]
    other = agent(folders, "two")
    assert other.hashes() == [THEIRS, SHARED]
    assert [other.experiments(one) for one in (THEIRS, SHARED)] == [["digits"], ["moons"]]
    await other.close()


async def test_snapshots_of_another_cluster_make_no_room(folders: tuple[Path, Path]) -> None:
    snapshots = agent(folders)
    store = snapshots._store
    assert isinstance(store, ScriptedStore)
    for sha256 in (OURS, THEIRS, SHARED):
        store.blobs[sha256] = b"state"
        store.owned.add((sha256, "digits"))
    assert await snapshots.make_room(0) == ([OURS], 15)
    await snapshots.close()


async def test_a_snapshot_of_another_cluster_that_a_run_takes_belongs_to_both(folders: tuple[Path, Path]) -> None:
    snapshots = agent(folders)
    snapshots.taken(THEIRS, "digits-2")
    assert THEIRS in snapshots.hashes()
    assert snapshots.experiments(THEIRS) == ["digits-2"]
    snapshots.forget([THEIRS])
    assert (folders[0] / THEIRS).exists()
    assert THEIRS not in snapshots.hashes()
    await snapshots.close()


async def test_a_snapshot_of_two_clusters_that_was_just_taken_stays_one_of_both(folders: tuple[Path, Path]) -> None:
    snapshots = agent(folders)
    snapshots.announcement_pending = lambda sha256: sha256 == SHARED
    snapshots.forget([SHARED])
    assert snapshots.experiments(SHARED) == ["digits"]
    snapshots.announcement_pending = lambda sha256: False
    snapshots.forget([SHARED])
    assert snapshots.experiments(SHARED) == []
    assert (folders[0] / SHARED).exists()
    await snapshots.close()


async def test_an_adopted_folder_belongs_to_the_new_cluster_as_a_whole(folders: tuple[Path, Path]) -> None:
    snapshots = agent(folders)
    snapshots.belong_to("three", adopt=True)
    later = agent(folders, "three")
    for found in (snapshots, later):
        assert found.hashes() == [OURS, THEIRS, SHARED, UNKNOWN]
        assert found.experiments(SHARED) == ["digits", "moons"]
        await found.close()
    assert len(list(folders[1].iterdir())) == 4


async def test_a_folder_that_belonged_to_no_cluster_does_not_take_the_snapshots_of_one(
    folders: tuple[Path, Path],
) -> None:
    snapshots = agent(folders, "")
    snapshots.belong_to("three", adopt=False)
    assert snapshots.hashes() == [UNKNOWN]
    await snapshots.close()


def test_damaged_and_unfinished_records_are_deleted(
    folders: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    needs = folders[1]
    for name, text in (
        (f"{UNKNOWN}.0", ""),
        (f"{UNKNOWN}.1", "digits"),
        (f"{UNKNOWN}.2", "[1]"),
        (f".{UNKNOWN}.x.partial", "{"),
    ):
        (needs / name).write_text(text)
    assert SnapshotReferences(needs, "one").of(UNKNOWN) == set()
    assert len(list(needs.iterdir())) == 4
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == f"3 damaged records of snapshots in {needs} were deleted; the snapshots count as unknown"
