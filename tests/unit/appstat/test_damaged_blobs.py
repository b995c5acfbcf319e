"""Tests of blobs that are damaged in a local store: they are found when they are read, asked for or put, and replaced."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from hopyard.errors import DataLoss, NotFound
from hopyard_appstat.blobs.backends import BlobUnreadable, LocalBackend, Stamp
from hopyard_appstat.blobs.store import BlobStore
from hopyard_appstat.database.blob_ownership import OwnedBlobs
from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrations.migrate import migrate
from tests.damage import flip, replace_by_folder, replace_by_link, replace_by_pipe
from tests.timing import HANG_SECONDS

DATA = b"weights" * 1000
SHA = hashlib.sha256(DATA).hexdigest()
SLOW = hashlib.sha256(b"slow").hexdigest()


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


DAMAGES: dict[str, Callable[[Path], object]] = {
    "removed": Path.unlink,
    "truncated": lambda file: os.truncate(file, 10),
    "longer": lambda file: file.write_bytes(DATA + b"x"),
    "empty": lambda file: os.truncate(file, 0),
    "a flipped bit": flip,
    "a link to the same bytes": lambda file: replace_by_link(file, file.parent.parent / "elsewhere"),
    "a pipe": replace_by_pipe,
    "a folder": replace_by_folder,
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


class HeldBackend(LocalBackend):
    """A backend that counts readings, and delays their first chunk until the test says `go`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.readings, self.stopped = 0, 0
        self.begun, self.go = asyncio.Event(), asyncio.Event()

    async def read(self, sha256: str, opened: Callable[[Stamp], None] | None = None) -> AsyncGenerator[bytes]:
        self.readings += 1
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        async with aclosing(super().read(sha256, opened)) as chunks:
            async for chunk in chunks:
                yield chunk


@pytest.fixture
def held(rig: Rig) -> tuple[BlobStore, HeldBackend]:
    """The store of `rig` after a restart, which has verified nothing yet."""
    backend = HeldBackend(rig.file.parent.parent)
    return BlobStore(backend, rig.file.parent.parent), backend


async def test_a_repeated_call_joins_the_verification_that_a_cancelled_call_began(
    held: tuple[BlobStore, HeldBackend],
) -> None:
    store, backend = held
    first = asyncio.create_task(store.intact(SHA))
    await backend.begun.wait()
    first.cancel()
    await asyncio.wait([first])
    again, beside = asyncio.create_task(store.intact(SHA)), asyncio.create_task(store.intact(SHA))
    backend.go.set()
    assert await again == await beside == len(DATA)
    assert (backend.readings, backend.stopped) == (1, 0)
    assert await store.intact(SHA) == len(DATA)
    assert backend.readings == 1


async def test_the_end_of_the_store_ends_verifications(held: tuple[BlobStore, HeldBackend]) -> None:
    store, backend = held
    call = asyncio.create_task(store.intact(SHA))
    await backend.begun.wait()
    await store.close()
    assert backend.stopped == 1
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_only_the_sizes_of_blobs_can_be_compared(
    rig: Rig, held: tuple[BlobStore, HeldBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, backend = held
    monkeypatch.setattr(rig.owned, "_blobs", store)
    assert await rig.owned.has([SHA], "e2", sizes_only=True) == [SHA]
    assert await rig.owned.owned([SHA], "e2") == [SHA]
    os.truncate(rig.file, 10)
    assert await rig.owned.has([SHA], "e3", sizes_only=True) == []
    assert backend.readings == 0


async def test_a_slow_write_of_one_blob_does_not_delay_others(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = rig.store._backend
    adopt, begun, go = backend.adopt, asyncio.Event(), asyncio.Event()

    async def adopt_slowly(sha256: str, file: Path) -> None:
        if sha256 == SLOW:
            begun.set()
            await go.wait()
        await adopt(sha256, file)

    async def slow() -> AsyncIterator[bytes]:
        yield b"slow"

    monkeypatch.setattr(backend, "adopt", adopt_slowly)
    writing = asyncio.create_task(rig.store.put(SLOW, slow()))
    await begun.wait()
    await rig.store.delete(SHA)
    async with asyncio.timeout(HANG_SECONDS):
        assert await rig.store.put(SHA, chunks()) == len(DATA)
    go.set()
    assert await writing == 4


async def test_bytes_that_change_immediately_after_they_were_read_are_not_verified(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = rig.store._backend
    stamp = backend.stamp

    async def stamp_then_damage(sha256: str) -> Stamp | None:
        found = await stamp(sha256)
        flip(rig.file)
        return found

    reading = rig.owned.get(SHA)
    assert await anext(reading) == DATA
    monkeypatch.setattr(backend, "stamp", stamp_then_damage)
    assert [chunk async for chunk in reading] == []
    monkeypatch.undo()
    assert await rig.owned.has([SHA], "e2") == []


async def test_a_file_that_cannot_be_deleted_is_no_folder(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "a name")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError, match="a name"):
        await rig.store.delete(SHA)


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
    flip(rig.file)
    reading = rig.owned.get(SHA)
    await anext(reading)
    await rig.owned.put(SHA, "e1", chunks())
    with pytest.raises(DataLoss):
        await anext(reading)
    assert await rig.read() == DATA
