"""Tests of the lock by which a data directory has one cluster at most."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hopyard.client.address import find_server, read_address
from hopyard.client.local_cluster.data_dir_lock import DataLock, acquire_when_free, is_locked, lock_holder
from hopyard.errors import Conflict, InvalidInput, Unavailable

pytestmark = pytest.mark.quick


def test_the_second_is_told_who_the_first_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert not is_locked(data)
    lock = DataLock.acquire(data, "hopyard run")
    assert is_locked(data)
    assert lock_holder(data) == (os.getpid(), "hopyard run")
    with pytest.raises(Conflict, match=rf"hopyard run \(process {os.getpid()}\) is using this data directory"):
        DataLock.acquire(data, "hopyard up")
    lock.release()
    lock.release()
    assert not is_locked(data)
    DataLock.acquire(data, "hopyard up").release()


def test_children_hold_it_until_they_have_ended(tmp_path: Path) -> None:
    lock = DataLock.acquire(tmp_path, "hopyard run")
    inherited = os.dup(lock.descriptor)
    lock.release()
    assert is_locked(tmp_path)
    (tmp_path / "cluster.lock").write_text('{"pid": 4194305, "purpose": "hopyard run"}')
    with pytest.raises(Conflict, match=r"process 4194305, gone\) started are still shutting down"):
        DataLock.acquire(tmp_path, "hopyard up")
    os.close(inherited)
    assert not is_locked(tmp_path)


@pytest.mark.merge
async def test_what_a_killed_cluster_left_behind_is_waited_for(tmp_path: Path) -> None:
    lock = DataLock.acquire(tmp_path, "hopyard run")
    (tmp_path / "cluster.lock").write_text('{"pid": 4194305, "purpose": "hopyard run"}')
    with pytest.raises(Conflict, match="still shutting down"):
        await acquire_when_free(tmp_path, "hopyard up", patience=0.0)
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        lock.release()

    (await acquire_when_free(tmp_path, "hopyard up", patience=60.0, note=note)).release()
    assert notes == ["waiting for the services that hopyard run (process 4194305, gone) started to end"]


async def test_a_living_cluster_is_not_waited_for(tmp_path: Path) -> None:
    lock = DataLock.acquire(tmp_path, "hopyard run")
    with pytest.raises(Conflict, match="is using this data directory"):
        await acquire_when_free(tmp_path, "hopyard up", patience=3600.0)
    lock.release()


def test_a_holder_that_cannot_be_read(tmp_path: Path) -> None:
    lock = DataLock.acquire(tmp_path, "hopyard run")
    (tmp_path / "cluster.lock").write_text("?")
    with pytest.raises(Conflict, match="another cluster is using"):
        DataLock.acquire(tmp_path, "hopyard up")
    lock.release()


def test_finding_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HOPYARD_SERVER", "HOPYARD_DATA"):
        monkeypatch.delenv(variable, raising=False)
    assert find_server("host:1", None) == ("host:1", None)
    with pytest.raises(InvalidInput, match="not both"):
        find_server("host:1", tmp_path)
    with pytest.raises(Unavailable, match=r"scheduler.address is missing\); start one with `hopyard up --data"):
        find_server(None, tmp_path)
    (tmp_path / "scheduler.address").write_text("127.0.0.1:7\n")
    assert read_address(tmp_path) == "127.0.0.1:7"
    monkeypatch.setenv("HOPYARD_DATA", str(tmp_path))
    assert find_server(None, None) == ("127.0.0.1:7", tmp_path)
    monkeypatch.setenv("HOPYARD_SERVER", "host:2")
    assert find_server(None, None) == ("host:2", None)
