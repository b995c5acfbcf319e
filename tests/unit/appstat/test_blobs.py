from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore, ObjectStore

from hopyard.errors import DataLoss, Exhausted, InvalidInput, NotFound
from hopyard_appstat.blobs.backends import LocalBackend, ObjectBackend, Stamp
from hopyard_appstat.blobs.store import Backend, BlobStore, open_backend
from tests.damage import flip

pytestmark = pytest.mark.quick

DATA = b"snapshot" * 400_000  # 3.2 MB: several chunks
SHA = hashlib.sha256(DATA).hexdigest()


async def chunks(data: bytes = DATA) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 1 << 20):
        yield data[start : start + (1 << 20)]


async def read(store: BlobStore, sha256: str = SHA) -> bytes:
    parts = [part async for part in store.get(sha256)]
    assert max(map(len, parts), default=0) <= 1 << 20
    return b"".join(parts)


@pytest.fixture(params=["local", "object"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "local":
        return LocalBackend(tmp_path / "store")
    found = open_backend("memory:///", tmp_path)
    assert isinstance(found, ObjectBackend)
    return found


@pytest.fixture
async def store(backend: Backend, tmp_path: Path) -> BlobStore:
    opened = BlobStore(backend, tmp_path / "incoming", max_bytes=len(DATA))
    await opened.open()
    return opened


def incoming(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "incoming").iterdir())


async def test_what_is_put_is_got(store: BlobStore, tmp_path: Path) -> None:
    assert await store.size(SHA) is None
    assert await store.put(SHA, chunks()) == len(DATA)
    assert await store.size(SHA) == len(DATA)
    assert await read(store) == DATA
    assert incoming(tmp_path) == []


async def test_what_is_there_is_not_read_again(store: BlobStore) -> None:
    await store.put(SHA, chunks())
    untouched = chunks()
    assert await store.put(SHA, untouched) == len(DATA)
    assert await anext(untouched) == DATA[: 1 << 20]


async def test_the_empty_blob_is_a_blob(store: BlobStore) -> None:
    sha = hashlib.sha256(b"").hexdigest()
    assert await store.put(sha, chunks(b"")) == 0
    assert await store.size(sha) == 0
    assert await read(store, sha) == b""


async def test_another_hash_is_data_loss_and_leaves_nothing(store: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(DataLoss, match="send it again"):
        await store.put(SHA, chunks(DATA[:-1] + b"x"))
    assert await store.size(SHA) is None
    assert incoming(tmp_path) == []


async def test_too_much_is_refused_and_leaves_nothing(store: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(Exhausted, match="--max-blob-bytes"):
        await store.put(SHA, chunks(DATA + b"x"))
    assert incoming(tmp_path) == []


async def test_a_full_disk_is_exhausted_and_leaves_nothing(
    store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exhausted, match="No space left on device; make room"):
        await store.put(SHA, chunks())
    assert incoming(tmp_path) == []
    assert await store.size(SHA) is None


async def test_what_is_deleted_is_gone_and_may_be_deleted_again(store: BlobStore) -> None:
    await store.put(SHA, chunks())
    await store.delete(SHA)
    await store.delete(SHA)
    assert await store.size(SHA) is None
    with pytest.raises(NotFound):
        await read(store)


@pytest.mark.parametrize(
    "sha", ["", "../../etc/passwd", "/" * 64, SHA.upper(), SHA[:-1], SHA + "0", SHA[:-1] + "\n", "../" + SHA]
)
async def test_paths_that_pose_as_hashes_are_refused(store: BlobStore, tmp_path: Path, sha: str) -> None:
    calls: list[Any] = [store.size(sha), store.put(sha, chunks()), store.delete(sha), read(store, sha)]
    for call in calls:
        with pytest.raises(InvalidInput, match="allowed are 64 digits of lower-case hex"):
            await call
    assert incoming(tmp_path) == []


async def test_a_flipped_bit_is_found_and_healed_by_a_new_copy(tmp_path: Path) -> None:
    store = BlobStore(LocalBackend(tmp_path / "store"), tmp_path / "incoming")
    await store.open()
    await store.put(SHA, chunks())
    file = tmp_path / "store" / SHA[:2] / SHA
    flip(file)
    with pytest.raises(DataLoss, match="was damaged in the store"):
        await read(store)
    assert await store.size(SHA) is None
    await store.put(SHA, chunks())
    assert await read(store) == DATA


async def test_a_store_on_another_disk_gets_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = BlobStore(LocalBackend(tmp_path / "store"), tmp_path / "incoming")
    await store.open()
    replace = os.replace

    def across(source: Path, target: Path) -> None:
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, target)

    monkeypatch.setattr(os, "replace", across)
    await store.put(SHA, chunks())
    assert await read(store) == DATA
    assert [path.name for path in (tmp_path / "store" / SHA[:2]).iterdir()] == [SHA]
    assert incoming(tmp_path) == []


async def test_the_rest_of_a_killed_predecessor_is_cleared(tmp_path: Path) -> None:
    (tmp_path / "incoming").mkdir()
    (tmp_path / "incoming" / "half").write_bytes(b"half")
    store = BlobStore(LocalBackend(tmp_path / "store"), tmp_path / "incoming")
    await store.open()
    assert await store.clear_partials(dry_run=True) == (1, 4)
    assert len(incoming(tmp_path)) == 1
    assert await store.clear_partials() == (1, 4)
    assert incoming(tmp_path) == []


async def test_an_upload_under_way_is_no_partial(store: BlobStore, tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        async for chunk in chunks():
            yield chunk
            begun.set()
            await go_on.wait()

    upload = asyncio.create_task(store.put(SHA, slow()))
    await begun.wait()
    assert len(incoming(tmp_path)) == 1
    assert await store.clear_partials() == (0, 0)
    go_on.set()
    assert await upload == len(DATA)


async def test_a_survey_finds_blobs_and_parts_and_nothing_of_others(tmp_path: Path) -> None:
    backend = LocalBackend(tmp_path / "store")
    store = BlobStore(backend, tmp_path / "incoming")
    await store.open()
    await store.put(SHA, chunks())
    part = tmp_path / "store" / SHA[:2] / f"{SHA}.{'0' * 32}.part"
    part.write_bytes(b"half")
    (tmp_path / "store" / SHA[:2] / "notes.txt").write_text("mine")
    (tmp_path / "store" / "00").mkdir(exist_ok=True)
    (tmp_path / "store" / "00" / ("ff" * 32)).write_bytes(b"in the wrong folder")
    found = {one.key.rpartition("/")[2]: one for one in await store.survey()}
    assert {name: (one.sha256, one.size) for name, one in found.items()} == {SHA: (SHA, len(DATA)), part.name: ("", 4)}
    await store.remove(found[part.name])
    assert not part.exists()


async def test_a_survey_of_an_object_store(tmp_path: Path) -> None:
    backend = open_backend("memory:///", tmp_path)
    store = BlobStore(backend, tmp_path / "incoming")
    await store.open()
    await store.put(SHA, chunks())
    (found,) = await store.survey()
    assert (found.sha256, found.size) == (SHA, len(DATA))
    assert abs(found.modified_at - time.time()) < 3600
    await store.remove(found)
    assert await store.survey() == []


def test_a_store_url_that_is_not_supported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--store: found 'nonsense'"):
        open_backend("nonsense", tmp_path)
    assert isinstance(open_backend(f"file://{tmp_path}/elsewhere", tmp_path), LocalBackend)


class CountingBackend(ObjectBackend):
    """An object store that counts requests for stamps."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self.stamps = 0

    async def stamp(self, sha256: str) -> Stamp | None:
        self.stamps += 1
        return await super().stamp(sha256)


@pytest.fixture
def objects(tmp_path: Path) -> tuple[BlobStore, CountingBackend, MemoryStore]:
    memory = MemoryStore()
    backend = CountingBackend(memory)
    (tmp_path / "incoming").mkdir()
    return BlobStore(backend, tmp_path / "incoming"), backend, memory


async def test_a_download_from_an_object_store_asks_for_nothing_else(
    objects: tuple[BlobStore, CountingBackend, MemoryStore],
) -> None:
    store, backend, _ = objects
    await store.put(SHA, chunks())
    assert backend.stamps == 1  # Whether it is there.
    assert await read(store) == DATA
    assert backend.stamps == 1


async def test_a_new_object_is_not_deleted_because_of_a_damaged_one_of_equal_size(
    objects: tuple[BlobStore, CountingBackend, MemoryStore],
) -> None:
    store, _, memory = objects
    key = f"{SHA[:2]}/{SHA}"
    obstore.put(memory, key, b"x" * len(DATA))
    reading = store.get(SHA)
    await anext(reading)
    obstore.put(memory, key, DATA)
    with pytest.raises(DataLoss):
        async for _ in reading:
            pass
    assert await read(store) == DATA
    obstore.put(memory, key, b"x" * len(DATA))
    with pytest.raises(DataLoss):
        await read(store)
    assert await store.size(SHA) is None
