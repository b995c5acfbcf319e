"""Tests of blobs that are damaged in a local store: they are found when they are read, asked for or put, and replaced."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from hopyard.errors import DataLoss, NotFound
from hopyard_appstat.blobs.backends import BlobUnreadable, LocalBackend
from hopyard_appstat.blobs.store import BlobStore
from hopyard_appstat.database.blob_ownership import OwnedBlobs
from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrations.migrate import migrate

DATA = b"weights" * 1000
SHA = hashlib.sha256(DATA).hexdigest()


async def chunks() -> AsyncIterator[bytes]:
    yield DATA


class Rig:
    """A store with an index that has one blob of the owner "e1"."""

    def __init__(self, folder: Path, store: BlobStore, owned: OwnedBlobs) -> None:
        self.store, self.owned = store, owned
        self.file = folder / "store" / SHA[:2] / SHA

    async def read(self) -> bytes:
        return b"".join([part async for part in self.owned.get(SHA)])


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    database = open_database(database_url(None, tmp_path))
    migrate(database.writer)
    index = Store(database)
    running = asyncio.create_task(index.run())
    store = BlobStore(LocalBackend(tmp_path / "store"), tmp_path / "incoming")
    await store.open()
    found = Rig(tmp_path, store, OwnedBlobs(index, store))
    await found.owned.put(SHA, "e1", chunks())
    yield found
    await index.close()
    await running
    index.release()


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[3] ^= 1
    file.write_bytes(data)


def _to_link(file: Path) -> None:
    file.rename(file.parent.parent / "elsewhere")
    file.symlink_to(file.parent.parent / "elsewhere")


def _to_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _to_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "x").touch()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "truncated": lambda file: os.truncate(file, 10),
    "longer": lambda file: file.write_bytes(DATA + b"x"),
    "empty": lambda file: os.truncate(file, 0),
    "a flipped bit": _flip,
    "a link to the same bytes": _to_link,
    "a pipe": _to_pipe,
    "a folder": _to_folder,
}
UNREAD = [kind for kind in DAMAGES if kind != "a flipped bit"]
"""Damages that are found without reading the blob."""


@pytest.mark.parametrize("kind", DAMAGES)
async def test_a_damaged_blob_is_not_given(rig: Rig, kind: str) -> None:
    DAMAGES[kind](rig.file)
    with pytest.raises(NotFound if kind == "removed" else DataLoss):
        await rig.read()
    assert not rig.file.exists()
    await rig.owned.put(SHA, "e1", chunks())
    assert await rig.read() == DATA
    assert rig.file.is_file()
    assert not rig.file.is_symlink()


@pytest.mark.parametrize("kind", DAMAGES)
async def test_a_damaged_blob_is_replaced_by_a_put(rig: Rig, kind: str) -> None:
    DAMAGES[kind](rig.file)
    assert await rig.owned.put(SHA, "e1", chunks()) == len(DATA)
    assert await rig.read() == DATA
    assert not rig.file.is_symlink()


@pytest.mark.parametrize("kind", DAMAGES)
async def test_a_damaged_blob_is_not_there_for_who_will_not_send_it(rig: Rig, kind: str) -> None:
    assert await rig.owned.has([SHA], "e2") == [SHA]
    DAMAGES[kind](rig.file)
    assert await rig.owned.has([SHA], "e2") == []


@pytest.mark.parametrize("kind", UNREAD)
async def test_queries_notice_what_needs_no_reading(rig: Rig, kind: str) -> None:
    assert await rig.owned.has([SHA], "") == [SHA]
    assert await rig.owned.owned([SHA], "e1") == [SHA]
    DAMAGES[kind](rig.file)
    assert await rig.owned.has([SHA], "") == []
    assert await rig.owned.owned([SHA], "e1") == []


async def test_an_unchanged_blob_is_read_only_once_to_verify_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("it is read again")

    monkeypatch.setattr("hopyard_appstat.blobs.backends._open_file", refuse)
    assert await rig.owned.has([SHA], "e2") == [SHA], "it was verified when it was put"
    monkeypatch.undo()
    other = BlobStore(LocalBackend(rig.file.parent.parent), rig.file.parent.parent)
    assert await other.intact(SHA) == len(DATA)
    monkeypatch.setattr("hopyard_appstat.blobs.backends._open_file", refuse)
    assert await other.intact(SHA) == len(DATA)


async def test_a_blob_that_the_disk_cannot_read_is_kept(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("hopyard_appstat.blobs.backends._open_file", broken)
    with pytest.raises(BlobUnreadable, match="cannot be read from the store: Input/output error"):
        await rig.read()
    assert rig.file.exists()
    monkeypatch.undo()
    assert await rig.read() == DATA


async def test_a_new_copy_is_not_deleted_in_place_of_the_damaged_one(rig: Rig) -> None:
    _flip(rig.file)
    reading = rig.owned.get(SHA)
    await anext(reading)
    await rig.owned.put(SHA, "e1", chunks())
    with pytest.raises(DataLoss):
        await anext(reading)
    assert await rig.read() == DATA
