"""Tests of the agent's folders, logs and transfers."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopyard._runtime import snapshot_folder
from hopyard._runtime.snapshot_folder import FolderMember, hash_folder, members
from hopyard.errors import DataLoss, InvalidInput
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard_nodeagent.paths import AgentFolders
from hopyard_nodeagent.runs.logs import log_reader
from hopyard_nodeagent.snapshots import transfers
from hopyard_nodeagent.snapshots.transfers import (
    check_hash,
    packed_chunks,
    receive_file,
    receive_named_by_hash,
    receive_snapshot,
)

pytestmark = pytest.mark.quick


def test_what_an_earlier_agent_left_half_done_is_removed(tmp_path: Path) -> None:
    folders = AgentFolders(tmp_path)
    (folders.snapshots / "complete").write_text("x")
    (folders.snapshots / ".half.partial").write_text("x")
    (folders.snapshots / ".half.saving" / "state").mkdir(parents=True)
    (folders.bundles / ".half").mkdir()
    scratch = folders.scratch(RunKey(StreamId("e"), "j", 1, 0))
    scratch.mkdir()
    folders.close()
    AgentFolders(tmp_path)
    assert [path.name for path in folders.snapshots.iterdir()] == ["complete"]
    assert list(folders.bundles.iterdir()) == []
    assert not scratch.exists()


@pytest.mark.merge
@given(st.text(max_size=60), st.text(max_size=60))
def test_ids_never_lead_out_of_their_folder(
    tmp_path_factory: pytest.TempPathFactory, experiment: str, job: str
) -> None:
    folders = AgentFolders(tmp_path_factory.getbasetemp() / "ids")
    folders.close()
    try:
        path = folders.job_log(experiment, job)
    except UnicodeEncodeError:  # ids with lone surrogates cannot be sent on the wire either
        return
    assert path.parent.parent == folders.logs / "jobs"
    assert len(path.name) < 200


async def stream(path: Path, offset: int) -> bytes:
    return b"".join([data async for _, data in log_reader.stream(path, offset, lambda: False)])


async def test_logs_are_read_from_any_offset(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert await stream(path, 0) == b""
    path.write_bytes(b"x" * 100_000 + b"end")
    assert len(await stream(path, 0)) == 100_003
    assert await stream(path, 100_000) == b"end"
    assert await stream(path, -3) == b"end"
    assert await stream(path, 200_000) == b""
    assert len(await stream(path, -200_000)) == 100_003


async def test_the_last_look_comes_after_the_end_is_known(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def follow() -> bool:
        path.write_bytes(b"last words")  # just before the run ended
        return False

    assert [data async for _, data in log_reader.stream(path, 0, follow)] == [b"last words"]


def test_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert log_reader.last_lines(path) == ""
    path.write_text("".join(f"line {number}\n" for number in range(100)))
    assert log_reader.last_lines(path).splitlines()[0] == "line 88"
    assert log_reader.last_lines(path, since=path.stat().st_size - 8) == "line 99"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_file_arrives_whole_or_not_at_all(tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"abc").hexdigest()
    assert await receive_file(chunks(b"a", b"bc"), tmp_path / "file", sha256, "a peer") == 3
    assert (tmp_path / "file").read_bytes() == b"abc"
    with pytest.raises(DataLoss, match="a peer sent 3 bytes with the hash"):
        await receive_file(chunks(b"abd"), tmp_path / "other", sha256, "a peer")

    async def breaks() -> AsyncIterator[bytes]:
        yield b"a"
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await receive_file(breaks(), tmp_path / "other", sha256, "a peer")
    assert names(tmp_path) == ["file"]


async def test_what_arrives_faster_than_it_is_written_arrives_whole(tmp_path: Path) -> None:
    parts = [bytes([number]) * 300_000 for number in range(60)]
    sha256 = hashlib.sha256(b"".join(parts)).hexdigest()
    assert await receive_file(chunks(*parts), tmp_path / "file", sha256, "a peer", durable=False) == 18_000_000


async def arriving(*parts: bytes | list[FolderMember]) -> AsyncIterator[bytes | list[FolderMember]]:
    for part in parts:
        yield part


async def test_a_folder_arrives_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "saved" / "state").mkdir(parents=True)
    (tmp_path / "saved" / "state" / "weights").write_bytes(b"abc")
    sha256, found = hash_folder(tmp_path / "saved").sha256, members(tmp_path / "saved")
    target = tmp_path / sha256
    for refused, reason in (
        (arriving(found, b"abd"), "with the hash"),
        (arriving(found, b"ab"), "1 bytes of 'weights' are missing"),
        (arriving(found, b"ab", b"cd", b"e"), "bytes more than"),
        (arriving(found, b"ab", found), "twice"),
        (arriving([FolderMember("../out", 3)], b"abc"), "stay inside"),
        (arriving(b"abc"), "with the hash"),
        (arriving(), "with the hash"),
    ):
        with pytest.raises(DataLoss, match=f"a peer .*{reason}"):
            await receive_snapshot(refused, target, sha256, "a peer")
        assert names(tmp_path) == ["saved"]
    assert await receive_snapshot(arriving(found, b"a", b"bc"), target, sha256, "a peer") == 10240
    assert (target / "state" / "weights").read_bytes() == b"abc"


async def test_what_arrives_a_second_time_is_removed_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[bool] = []

    def remove(path: Path) -> None:
        removed.append(threading.current_thread() is threading.main_thread())
        snapshot_folder.remove(path)

    monkeypatch.setattr(transfers, "remove", remove)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "weights").write_bytes(b"abc")
    sha256, found = hash_folder(tmp_path / "saved").sha256, members(tmp_path / "saved")
    for _ in range(2):
        await receive_snapshot(arriving(found, b"abc"), tmp_path / sha256, sha256, "a peer")
    assert names(tmp_path) == sorted([sha256, "saved"])
    assert removed == [False]


async def test_a_transfer_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    taken = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield b"a" * 1_000_000
        taken.set()
        await asyncio.Event().wait()

    receiving = asyncio.create_task(receive_file(stuck(), tmp_path / "file", "0" * 64, "a peer"))
    await taken.wait()
    receiving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    assert names(tmp_path) == []


async def test_a_file_is_named_by_what_arrived(tmp_path: Path) -> None:
    arrived = await receive_named_by_hash(chunks(b"abc"), tmp_path)
    assert arrived.path.name == arrived.sha256 == hashlib.sha256(b"abc").hexdigest()
    assert arrived.size == 3


async def test_a_file_is_sent_in_chunks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert [data async for data in packed_chunks(path)] == [b""]
    path.write_bytes(bytes(2**20 + 5))
    assert [len(data) async for data in packed_chunks(path)] == [2**20, 5]


@pytest.mark.parametrize("text", ["", "x", "A" * 64, "../" + "0" * 61, "0" * 65])
def test_what_is_no_hash_names_no_file(text: str) -> None:
    with pytest.raises(InvalidInput, match="allowed are 64"):
        check_hash(text)
