"""A process that asks whether a cluster runs does not keep a cluster from starting."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from hopyard.client.local_cluster.data_dir_lock import DataLock, is_locked
from hopyard.errors import Conflict

pytestmark = pytest.mark.quick


def test_a_lock_waits_for_a_process_that_only_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    DataLock.acquire(tmp_path, "an earlier run").release()
    asking = os.open(tmp_path / "cluster.lock", os.O_RDWR)
    fcntl.flock(asking, fcntl.LOCK_SH)
    real, tried = fcntl.flock, []

    def flock(descriptor: int, kind: int) -> None:
        tried.append(kind)
        if len(tried) == 4:  # the second try for the exclusive lock
            os.close(asking)
        real(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = DataLock.acquire(tmp_path, "a cluster")
    exclusive, shared = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB
    assert tried == [exclusive, shared, fcntl.LOCK_UN, exclusive]
    lock.release()


def test_a_cluster_is_still_a_conflict(tmp_path: Path) -> None:
    lock = DataLock.acquire(tmp_path, "a cluster")
    with pytest.raises(Conflict, match="a cluster"):
        DataLock.acquire(tmp_path, "another cluster")
    assert is_locked(tmp_path)
    lock.release()
    assert not is_locked(tmp_path)
