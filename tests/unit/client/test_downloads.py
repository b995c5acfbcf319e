"""Tests of the choice of the snapshot to download, and of the errors for jobs that have none."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopyard.client.transfer import downloads
from hopyard.client.transfer.downloads import choose, download
from hopyard.client.types import Job, JobState, Node, NodeState, Snapshot
from hopyard.client.wire.connection import Connection
from hopyard.errors import DataLoss, HopyardError, NotFound, Unsupported

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (JobState.RUNNING, "it saves one when it is suspended, when it ends, and every snapshot.every units"),
        (
            JobState.COMPLETED,
            "it trained to its end without one: snapshots of a script come from hopyard.report(checkpoint=",
        ),
        (JobState.TERMINATED, "a job that is TERMINATED keeps none, unless it is the experiment's best one"),
        (JobState.FAILED, "a job that is FAILED keeps none, unless it is the experiment's best one"),
    ],
)
def test_a_job_without_a_snapshot_is_told_as_its_state_is(state: JobState, told: str) -> None:
    with pytest.raises(NotFound) as error:
        choose(Job("e1", "5", state, position=10), "best")
    message = str(error.value)
    assert message.startswith(f"job 5 has no snapshot ({state.value} at position 10); ")
    assert told in message
    assert ("it saves one" in message) is (state is JobState.RUNNING)


async def test_processes_are_not_downloaded(tmp_path: Path) -> None:
    job = Job("e1", "5", JobState.COMPLETED, position=10)
    connection = Connection("127.0.0.1:1", timeout=1.0, patience=0.0)
    snapshot = Snapshot("5", 10, "0" * 64, provider="criu")
    with pytest.raises(Unsupported, match=r"contains its processes \(provider criu\), which only a node can restore"):
        await download(connection, job, snapshot, [], tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("stored", [NotFound("blob 00 is not in the store"), DataLoss("blob 00 has other bytes")])
async def test_a_copy_that_the_store_cannot_give_comes_from_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: HopyardError
) -> None:
    async def fetch_stored(connection: Connection, sha256: str, file: Path) -> None:
        raise stored

    asked: list[str] = []

    async def fetch_from_node(connection: Connection, address: str, sha256: str, file: Path) -> None:
        asked.append(address)
        raise NotFound(f"{address} has no such snapshot")

    monkeypatch.setattr(downloads, "fetch_stored", fetch_stored)
    monkeypatch.setattr(downloads, "fetch_from_node", fetch_from_node)
    job = Job("e1", "5", JobState.COMPLETED, position=10)
    connection = Connection("127.0.0.1:1", timeout=1.0, patience=0.0)
    with pytest.raises(type(stored), match=f"the snapshot of job 5 at position 10: {stored}"):
        await download(connection, job, Snapshot("5", 10, "0" * 64), [], tmp_path / "target")
    nodes = [Node("n1", "unix:n1", NodeState.UP), Node("n2", "unix:n2", NodeState.UP)]
    with pytest.raises(NotFound, match="the snapshot of job 5 at position 10: unix:n2 has no such snapshot"):
        await download(connection, job, Snapshot("5", 10, "0" * 64, nodes=("n2",)), nodes, tmp_path / "target")
    assert asked == ["unix:n2"]
