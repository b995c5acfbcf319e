"""Tests of the partition catalog with a scheduler and agents that read real files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from hopyard.client.datasets import DataPartition, ReplicaState
from hopyard.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from hopyard_scheduler.data import catalog
from tests.integration.scheduler.catalog_cluster import Cluster, partition, standing
from tests.timing import HANG_SECONDS, scaled

PRESENT, BROKEN, AWAY = ReplicaState.PRESENT, ReplicaState.BROKEN, ReplicaState.AWAY


@pytest.fixture
async def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    made = Cluster(tmp_path, **getattr(request, "param", {}))
    await made.start()
    try:
        await made.join("a", "b")
        yield made
    finally:
        await made.stop()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for index, name in enumerate(("one", "two", "three")):
        np.savez(folder / f"{name}.npz", x=np.arange(len(name) * 2).reshape(-1, 2), y=index + np.arange(len(name)))
    (folder / "copy.npz").write_bytes((folder / "one.npz").read_bytes())
    return folder


async def test_what_is_registered_is_read_kept_and_shown(cluster: Cluster, files: Path) -> None:
    parts = [
        partition("eval/0", b=files / "three.npz"),
        partition("train/1", b=files / "two.npz"),
        partition("train/0", a=files / "one.npz", b=files / "copy.npz"),
    ]
    made = await cluster.client.register_data("fashion", parts, request_id="r")
    assert [(one.name, one.examples) for one in made.partitions] == [("train/0", 3), ("train/1", 3), ("eval/0", 5)]
    assert made.partitions[0].size_bytes == (files / "one.npz").stat().st_size
    assert set(standing(made).values()) == {PRESENT}
    assert [replica.path for replica in made.partitions[0].replicas] == [
        str(files / "one.npz"),
        str(files / "copy.npz"),
    ]
    again = await cluster.client.register_data("fashion", parts[2:], request_id="r")
    assert again.partitions == made.partitions
    with pytest.raises(AlreadyExists, match="there is a data set 'fashion' already; take another name"):
        await cluster.client.register_data("fashion", parts)
    await cluster.stop_scheduler()
    await cluster.start_scheduler()
    states = await cluster.until("fashion", lambda states: set(states.values()) == {PRESENT})
    assert sorted(states) == ["eval/0@b", "train/0@a", "train/0@b", "train/1@b"]
    assert [one.name for one in await cluster.client.data_sets()] == ["fashion"]
    await cluster.client.drop_data("fashion")
    with pytest.raises(NotFound, match="there is no data set 'fashion'; there are: none"):
        await cluster.client.data_set("fashion")
    with pytest.raises(NotFound):
        await cluster.client.drop_data("fashion")


async def test_what_is_missing_or_differs_is_refused_with_both_sides_and_nothing_is_kept(
    cluster: Cluster, files: Path
) -> None:
    parts = [
        partition("train/0", a=files / "one.npz", b=files / "two.npz"),
        partition("train/1", a=files / "none.npz", b=files / "one.npz"),
    ]
    with pytest.raises(InvalidInput) as refused:
        await cluster.client.register_data("fashion", parts)
    differ, missing = str(refused.value).splitlines()
    assert differ.startswith(f"train/0: its replicas differ: a {files / 'one.npz'}: ")
    assert "bytes, SHA-256 " in differ
    assert f"; b {files / 'two.npz'}: " in differ
    assert missing == f"train/1: on a: {files / 'none.npz'}: there is no such file or folder"
    assert await cluster.client.data_sets() == []


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([partition("train/0", c=Path("/x"))], "there is no node c; there are: a, b"),
        ([partition("train/0", a=Path("x"))], "found a:x, needed is a node and an absolute path on it"),
        ([partition("train/1", a=Path("/x"))], "train/0 is missing; numbers begin at 0"),
        ([partition("eval/0", a=Path("/x"))], "found none to train on"),
        ([partition("train/0", a=Path("/x"))] * 2, "found train/0 twice"),
        ([partition("test/0", a=Path("/x"))], "found 'test/0', allowed are train/0"),
        ([partition("train/0")], "found no place, needed is NODE:/PATH or a URL"),
        ([DataPartition("train/0", url="s3://user:secret@b/x")], "credentials come from the nodes' environment"),
        ([], "found none to train on"),
    ],
)
async def test_what_cannot_be_registered_says_why(
    cluster: Cluster, parts: list[DataPartition], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "ARRIVAL_SECONDS", 0.05)
    with pytest.raises(InvalidInput) as refused:
        await cluster.client.register_data("fashion", parts)
    assert expected in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_a_registration_waits_for_nodes_that_are_on_their_way(
    cluster: Cluster, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Start with a scheduler to which no agent has connected yet, as in a cluster that is just starting."""
    monkeypatch.setattr(catalog, "ARRIVAL_SECONDS", HANG_SECONDS)
    for node in ("a", "b"):
        await cluster.leave(node)
    async with asyncio.timeout(HANG_SECONDS):
        while cluster.scheduler._sessions.connected():  # noqa: ASYNC110 - the scheduler detects it later
            await asyncio.sleep(0.02)
    url = DataPartition("train/0", url=f"file://{files}/two.npz")
    tasks = [
        asyncio.create_task(cluster.client.register_data("near", [partition("train/0", c=files / "one.npz")])),
        asyncio.create_task(cluster.client.register_data("far", [url])),
    ]
    await asyncio.wait(tasks, timeout=0.1)
    await cluster.join("c")
    near, far = await asyncio.gather(*tasks)
    assert set(standing(near).values()) == {PRESENT}
    assert [one.examples for one in far.partitions] == [3]


@pytest.mark.parametrize("cluster", [pytest.param({"lease_seconds": scaled(2.0)}, id="short lease")], indirect=True)
async def test_availability_follows_nodes_and_files(cluster: Cluster, files: Path) -> None:
    parts = [partition("train/0", a=files / "one.npz", b=files / "copy.npz"), partition("train/1", b=files / "two.npz")]
    await cluster.client.register_data("fashion", parts)
    (files / "copy.npz").unlink()
    expected = {"train/0@a": PRESENT, "train/0@b": BROKEN, "train/1@b": PRESENT}
    await cluster.until("fashion", lambda states: states == expected)
    shown = (await cluster.client.data_set("fashion")).partitions[0].replicas[1].detail
    assert shown == f"{files / 'copy.npz'}: there is no such file or folder"
    (files / "copy.npz").write_bytes((files / "two.npz").read_bytes())

    async with asyncio.timeout(HANG_SECONDS):
        while "not what was registered" not in shown:  # Clients receive no message of this.
            await asyncio.sleep(0.02)
            shown = (await cluster.client.data_set("fashion")).partitions[0].replicas[1].detail
    (files / "copy.npz").write_bytes((files / "one.npz").read_bytes())
    await cluster.until("fashion", lambda states: set(states.values()) == {PRESENT})
    await cluster.leave("b")
    expected = {"train/0@a": PRESENT, "train/0@b": AWAY, "train/1@b": AWAY}
    await cluster.until("fashion", lambda states: states == expected)
    with pytest.raises(Conflict, match="b is not connected, so nobody can look at its files"):
        await cluster.client.register_data("other", [partition("train/0", b=files / "two.npz")])
    await cluster.join("b")
    await cluster.until("fashion", lambda states: set(states.values()) == {PRESENT})


async def test_partitions_by_url_are_got_once_by_a_node(cluster: Cluster, files: Path) -> None:
    url = f"file://{files}/one.npz"
    made = await cluster.client.register_data("far", [DataPartition("train/0", url=url)])
    assert (made.partitions[0].examples, made.partitions[0].url) == (3, url)
    states = await cluster.until("far", lambda states: PRESENT in states.values())
    assert list(states) == ["train/0@a"]
    copies = list((cluster.folder / "a" / "partitions").glob("*/one.npz"))
    assert [copy.parent.name for copy in copies] == [made.partitions[0].sha256]
    with pytest.raises(InvalidInput, match="there is nothing"):
        await cluster.client.register_data("none", [DataPartition("train/0", url=f"{url}.gone")])
