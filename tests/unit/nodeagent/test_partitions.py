"""Tests of partitions on a node: read once, again after changes, fetched by URL within a budget, and refused with other content."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from hopyard._net.server import Background
from hopyard._runtime.datasets import reader
from hopyard._runtime.datasets.node_query import LOOK_AGAIN, PathAnswer, PathQuery, answer, answered, asked, question
from hopyard._runtime.datasets.reader import Content, content
from hopyard.errors import Aborted, DataLoss, Exhausted, InvalidInput, NotFound
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.data import digest_cache as inspector_module
from hopyard_nodeagent.data.digest_cache import Inspector
from hopyard_nodeagent.data.partitions import NodePartitions
from hopyard_nodeagent.data.url_partitions import Remote

pytestmark = pytest.mark.quick


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths that the inspector has read."""
    found: list[Path] = []

    def counted(path: Path, give_up: object = None) -> Content:
        found.append(path)
        return content(path)

    monkeypatch.setattr(inspector_module, "content", counted)
    return found


# -------------------------------------------------------------------------------------------------------------- reading


def test_a_folder_is_as_its_files_are_named_and_hold(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "below").mkdir(parents=True)
        (tmp_path / name / "b").write_bytes(b"xy")
        (tmp_path / name / "below" / "a").write_bytes(b"z")
    first, second = content(tmp_path / "one"), content(tmp_path / "two")
    assert first == second
    assert (first.size, first.examples) == (3, None)
    (tmp_path / "two" / "b").rename(tmp_path / "two" / "c")
    assert content(tmp_path / "two").sha256 != first.sha256


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="needed is a regular file"):
        content(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="pipe: needed is a regular file"):
        content(tmp_path)
    with pytest.raises(NotFound, match="there is no such file or folder"):
        content(tmp_path / "none")


@pytest.mark.merge
def test_examples_are_counted_where_the_format_says_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "even.npz", x=np.zeros((7, 2)), y=np.zeros(7))
    np.savez(tmp_path / "uneven.npz", x=np.zeros(7), y=np.zeros(8))
    np.savez(tmp_path / "scalar.npz", x=np.float64(1))
    (tmp_path / "broken.npz").write_bytes(b"PK")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    (tmp_path / "other.bin").write_bytes(b"")
    names = ("even.npz", "uneven.npz", "scalar.npz", "broken.npz", "broken.parquet", "other.bin")
    assert [content(tmp_path / name).examples for name in names] == [7, None, None, None, None, None]


def test_a_long_reading_can_be_given_up(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    with pytest.raises(InterruptedError):
        content(tmp_path / "f", lambda: True)


# ------------------------------------------------------------------------------------------------------------ inspecting


async def test_a_file_is_read_once_until_it_changes_also_by_the_next_agent(tmp_path: Path, reads: list[Path]) -> None:
    file, memory = tmp_path / "f", tmp_path / "memory.json"
    file.write_bytes(b"one")
    inspector = Inspector(memory)
    found = await asyncio.gather(*(inspector.look(file) for _ in range(5)))
    assert {one.sha256 for one in found} == {sha256(b"one")}
    assert await Inspector(memory).look(file) == found[0]
    assert reads == [file]
    file.write_bytes(b"two")
    os.utime(file, ns=(1, 1))
    assert (await inspector.look(file)).sha256 == sha256(b"two")
    os.utime(file, ns=(2, 2))
    assert (await inspector.look(file)).sha256 == sha256(b"two")
    assert reads == [file] * 3
    memory.write_text('{"/f": "nonsense"}')
    assert (await Inspector(memory).look(file)).sha256 == sha256(b"two")
    with pytest.raises(InvalidInput, match="needed is an absolute path"):
        await inspector.look(Path("f"))


async def test_what_changes_while_it_is_read_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"one")

    def meanwhile(path: Path, give_up: object) -> Content:
        found = content(path)
        path.write_bytes(b"more")
        return found

    monkeypatch.setattr(inspector_module, "content", meanwhile)
    with pytest.raises(Aborted, match="it changes while it is read"):
        await Inspector(tmp_path / "memory.json").look(file)


# ----------------------------------------------------------------------------------------------------------------- by URL


def served(folder: Path, name: str, data: bytes) -> tuple[str, str, int]:
    """Write an object to a folder. Return its URL, hash and size in bytes."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return f"file://{folder}/{name}", sha256(data), len(data)


async def test_a_url_is_got_once_and_kept_under_its_name(tmp_path: Path) -> None:
    url, name, size = served(tmp_path / "store", "a.npz", b"abc")
    remote = Remote(_made(tmp_path / "kept"), None)
    path, fresh = await remote.get(url, name, size)
    assert (path, fresh, path.read_bytes()) == (tmp_path / "kept" / name / "a.npz", True, b"abc")
    (tmp_path / "store" / "a.npz").unlink()
    assert await remote.get(url, name, size) == (path, False)
    assert await Remote(tmp_path / "kept", None).get(url, name, size) == (path, False)
    with pytest.raises(NotFound, match="there is nothing"):
        await remote.get(url, "", 0)
    with pytest.raises(NotFound, match=r"/none: there is no such folder$"):
        await remote.get(f"file://{tmp_path}/none/x", "", 0)
    with pytest.raises(InvalidInput, match="no store is known"):
        await remote.get("nonsense://a/b", "", 0)


async def test_other_bytes_than_registered_are_refused_and_not_kept(tmp_path: Path) -> None:
    url, _, _ = served(tmp_path / "store", "a", b"abc")
    remote = Remote(_made(tmp_path / "kept"), None)
    with pytest.raises(DataLoss, match=f"found 3 bytes with the hash {sha256(b'abc')}; registered is {'0' * 64}"):
        await remote.get(url, "0" * 64, 3)
    assert remote.copies() == []
    unknown, _ = await remote.get(url, "", 0)
    again, _ = await remote.get(url, "", 0)
    assert unknown == again == tmp_path / "kept" / sha256(b"abc") / "a"


async def test_the_budget_keeps_what_is_in_use_and_what_was_used_last(tmp_path: Path) -> None:
    parts = [served(tmp_path / "store", f"{number}", bytes([number]) * 10) for number in range(4)]
    remote = Remote(_made(tmp_path / "kept"), 25)
    for number in (0, 1):
        path, _ = await remote.get(*parts[number])
        os.utime(path, (number, number))
    with remote.use(parts[0][1]):
        await remote.get(*parts[2])
        assert {copy.sha256 for copy in remote.copies()} == {parts[0][1], parts[2][1]}
        with remote.use(parts[2][1]), pytest.raises(Exhausted, match="5 bytes more than the node's budget"):
            await remote.get(*parts[3])
    large = served(tmp_path / "store", "large", b"x" * 26)
    with pytest.raises(Exhausted, match="--data-quota"):
        await remote.get(large[0], large[1], 0)
    assert sum(copy.size for copy in remote.copies()) <= 25
    assert list((tmp_path / "kept" / ".incoming").iterdir()) == []


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


# ------------------------------------------------------------------------------------------------------ questions and runs


class Node:
    """The partitions of a node; `said` contains its answers to the scheduler."""

    def __init__(self, folder: Path, background: Background) -> None:
        self.said: list[wire.NodeAnswer] = []
        self.heard = asyncio.Event()
        remote = Remote(_made(folder / "partitions"), None)
        self.partitions = NodePartitions(Inspector(folder / "memory.json"), remote, background, self._say)

    def _say(self, message: wire.NodeAnswer) -> None:
        self.said.append(message)
        self.heard.set()

    async def ask(self, *wanted: PathQuery) -> list[PathAnswer]:
        """Ask the node for the state of partitions, and return its answers."""
        self.heard.clear()
        self.partitions.ask(wire.NodeQuestion(ticket="t", kind="inspect", payload_json=question(wanted)))
        await self.heard.wait()
        return answered(self.said[-1].result_json, len(wanted))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with Background("test") as background:
        yield Node(tmp_path, background)


async def test_questions_are_answered_place_by_place(node: Node, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one")
    url, name, _ = served(tmp_path / "store", "u", b"far")
    places = (
        PathQuery(str(tmp_path / "f")),
        PathQuery(str(tmp_path / "none")),
        PathQuery(url, name),
        PathQuery(url),
        PathQuery(url, fetch=True),
    )
    found = await node.ask(*places)
    assert found[0] == PathAnswer(3, sha256(b"one"))
    assert [one.error.removeprefix(f"{tmp_path}/") for one in found[1:4]] == [
        "none: there is no such file or folder",
        f"{url}: it has not been read here",
        f"{url}: needed is a hash to look for",
    ]
    assert found[4] == PathAnswer(3, name)
    assert await node.ask(PathQuery(url, name)) == [PathAnswer(3, name)]
    node.heard.clear()
    node.partitions.ask(wire.NodeQuestion(ticket="t", payload_json="nonsense"))
    await node.heard.wait()
    assert node.said[-1].error.startswith("the question is none: found 'nonsense'")


async def test_a_run_finds_its_partition_and_is_not_given_another(node: Node, tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"one")

    async def path_of(start: wire.StartRun) -> str:
        async with node.partitions.ready(start) as path:
            return path

    start = wire.StartRun(input=str(file), input_name="train/0", input_sha256=sha256(b"one"), input_bytes=3)
    assert await path_of(start) == str(file)
    assert node.said == []
    file.write_bytes(b"other")
    with pytest.raises(DataLoss, match=r"partition train/0: .*found 5 bytes with the hash .*; registered are 3 with"):
        await path_of(start)
    file.unlink()
    with pytest.raises(DataLoss, match=r"partition train/0: .*there is no such file or folder"):
        await path_of(start)
    assert [message.ticket for message in node.said] == [LOOK_AGAIN] * 2
    assert await path_of(wire.StartRun(input="relative/path")) == "relative/path"
    assert await path_of(wire.StartRun()) == ""
    url, name, size = served(tmp_path / "store", "u", b"far")
    far = wire.StartRun(input=url, input_name="train/1", input_sha256=name, input_bytes=size)
    assert await path_of(far) == await path_of(far) == str(tmp_path / "partitions" / name / "u")
    assert len(node.said) == 3


def test_questions_and_answers_survive_the_wire() -> None:
    wanted = [PathQuery("/a"), PathQuery("s3://b/c", "ab", fetch=True)]
    assert asked(question(wanted)) == wanted
    found = [PathAnswer(1, "ab" * 32, 3), PathAnswer(error="no")]
    assert answered(answer(found), 2) == found
    with pytest.raises(ValueError, match="about 2 places, 3 were asked for"):
        answered(answer(found), 3)
    for text in ("", "{}x", "[1]", '[{"place": 1}]', "null"):
        with pytest.raises(ValueError, match="needed is a list of objects"):
            asked(text)
    assert reader.examples_in(Path("none.npz")) is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        *[({"size": size}, "size: found") for size in ("abc", 1.5, float("nan"), 2**63, -1, None, True)],
        *[({"sha256": sha256}, "sha256: found") for sha256 in (5, [1], None, "", "ab", "A" * 64)],
        *[({"examples": examples}, "examples: found") for examples in ("x", 2**70, -1)],
        *[({"error": error}, "error: found") for error in (["x"], None)],
        *[
            ({field: "\ud800"}, "needed is a list of objects with size.* unpaired surrogate")
            for field in ("sha256", "error")
        ],
        ({"size": 10**400}, "needed is a list of objects with size.* integer of 401 characters"),
    ],
    ids=str,
)
def test_an_invalid_answer_names_the_field(changes: dict[str, object], error: str) -> None:
    row = {"size": 1, "sha256": "a" * 64, "examples": None, "error": ""}
    assert answered(json.dumps([row]), 1) == [PathAnswer(1, "a" * 64)]
    with pytest.raises(ValueError, match=error):
        answered(json.dumps([row | changes]), 1)


def test_a_deeply_nested_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="needed is a list of objects with size"):
        answered("[" * 200_000, 1)
