"""Tests of blob ownership: which blobs a sweep deletes, and which ones a deletion keeps."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard_appstat.blobs.backends import LocalBackend
from hopyard_appstat.blobs.store import BlobStore
from hopyard_appstat.database.blob_ownership import OwnedBlobs, SweepResult
from hopyard_appstat.database.connections import database_url, open_database
from hopyard_appstat.database.store import Store
from hopyard_appstat.migrations.migrate import migrate
from hopyard_appstat.pagination import PageRequest


class Clock:
    def __init__(self) -> None:
        self.now = 10_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def index(tmp_path: Path, clock: Clock) -> AsyncIterator[Store]:
    database = open_database(database_url(None, tmp_path))
    migrate(database.writer)
    opened = Store(database, wall_clock=clock)
    running = asyncio.create_task(opened.run())
    yield opened
    await opened.close()
    await running
    opened.release()


@pytest.fixture
async def blobs(tmp_path: Path) -> BlobStore:
    store = BlobStore(LocalBackend(tmp_path / "store"), tmp_path / "incoming")
    await store.open()
    return store


@pytest.fixture
def owned(index: Store, blobs: BlobStore, clock: Clock) -> OwnedBlobs:
    return OwnedBlobs(index, blobs, wall_clock=clock)


async def bytes_of(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def put(owned: OwnedBlobs, data: bytes, owner: str) -> str:
    sha256 = hashlib.sha256(data).hexdigest()
    await owned.put(sha256, owner, bytes_of(data))
    return sha256


def orphan(tmp_path: Path, data: bytes, written_at: float) -> Path:
    """Write a blob without an owner, as a process killed before it records the owner leaves it. Return its path."""
    sha256 = hashlib.sha256(data).hexdigest()
    path = tmp_path / "store" / sha256[:2] / sha256
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (written_at, written_at))
    return path


async def test_a_sweep_deletes_old_orphans_and_partials_and_nothing_that_is_owned(
    owned: OwnedBlobs, blobs: BlobStore, clock: Clock, tmp_path: Path
) -> None:
    kept = await put(owned, b"kept", "x")
    old = orphan(tmp_path, b"orphan", clock.now - 601)
    young = orphan(tmp_path, b"under way", clock.now - 599)
    partial = tmp_path / "incoming" / "half"
    partial.write_bytes(b"half")
    expected = SweepResult(partials=1, partial_bytes=4, unknown=1, unknown_bytes=6)
    assert await owned.sweep(dry_run=True, older_than_seconds=600, foreign=False) == expected
    assert old.exists()
    assert partial.exists()
    assert await owned.sweep(dry_run=False, older_than_seconds=600, foreign=False) == expected
    assert not old.exists()
    assert not partial.exists()
    assert young.exists()
    assert await blobs.size(kept) == 4
    assert await owned.sweep(dry_run=False, older_than_seconds=600, foreign=False) == SweepResult()


async def test_what_others_may_have_put_into_a_shared_store_stays(
    index: Store, blobs: BlobStore, clock: Clock, tmp_path: Path
) -> None:
    shared = OwnedBlobs(index, blobs, alone=False, wall_clock=clock)
    theirs = orphan(tmp_path, b"theirs", 0.0)
    found = SweepResult(unknown=1, unknown_bytes=6, unknown_kept=True)
    assert await shared.sweep(dry_run=False, older_than_seconds=600, foreign=False) == found
    assert theirs.exists()
    found = SweepResult(unknown=1, unknown_bytes=6)
    assert await shared.sweep(dry_run=False, older_than_seconds=600, foreign=True) == found
    assert not theirs.exists()


async def test_an_owner_s_blobs_are_told_and_nobody_owns_more_by_that(owned: OwnedBlobs) -> None:
    both, theirs = await put(owned, b"both", "x"), await put(owned, b"theirs", "y")
    await owned.has([both], "y")
    assert await owned.owned([theirs, both, "0" * 64], "x") == [both]
    assert await owned.owned([theirs, both], "y") == [theirs, both]
    assert await owned.delete([theirs], "y") == [theirs]
    assert await owned.owned([theirs], "y") == []


async def test_what_was_wanted_lately_is_not_deleted(owned: OwnedBlobs, blobs: BlobStore, clock: Clock) -> None:
    first, second = await put(owned, b"one", "bundle"), await put(owned, b"two", "bundle")
    clock.now += 700
    # The question marks the blob as wanted: a process is about to use it.
    assert await owned.has([first], "bundle") == [first]
    clock.now += 10
    assert await owned.delete([first, second], "bundle", 600) == [second]
    assert (await blobs.size(first), await blobs.size(second)) == (3, None)
    page = await owned.list(PageRequest.of(0, ""))
    assert [(row["sha256"], row["owners"], row["unwanted_seconds"]) for row in page.items] == [
        (first, ["bundle"], 10.0)
    ]
    assert await owned.delete([first], "bundle") == [first]


async def test_the_index_is_paged_with_all_owners(owned: OwnedBlobs) -> None:
    hashes = [await put(owned, b"%d" % number, "x") for number in range(5)]
    await put(owned, b"3", "y")
    found = {}
    token = ""
    while True:
        page = await owned.list(PageRequest.of(2, token, "blobs"))
        found.update({row["sha256"]: (row["size_bytes"], tuple(row["owners"])) for row in page.items})
        token = page.next_token
        if not token:
            break
    assert found == {one: (1, ("x", "y") if one == hashes[3] else ("x",)) for one in hashes}
