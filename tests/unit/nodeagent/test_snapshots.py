"""Tests of the snapshot folder and of uploads, with a scripted store."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from hopyard._net.rpc import Backoff
from hopyard._net.server import Background
from hopyard._runtime import snapshot_folder
from hopyard._runtime.snapshot_folder import hash_folder
from hopyard.errors import DataLoss, Exhausted, HopyardError, NotFound, TimedOut, Unavailable
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard_nodeagent.snapshots import disk
from hopyard_nodeagent.snapshots.disk import Snapshots
from hopyard_nodeagent.snapshots.uploads import REFUSALS, Shipment, Uploader
from tests.access import AnyTicket
from tests.timing import HANG_SECONDS, scaled
from tests.unit.nodeagent.fakes import ScriptedStore

pytestmark = pytest.mark.quick

KEY = RunKey(StreamId("e"), "j", 1, 0)


class Node:
    """A snapshot folder with an uploader."""

    def __init__(self, folder: Path) -> None:
        self.store = ScriptedStore()
        self.snapshots = Snapshots(folder, self.store, tickets=AnyTicket())
        self.done: asyncio.Queue[tuple[Shipment, str]] = asyncio.Queue()
        self.shipper = Uploader(
            self.snapshots,
            self.store,
            backoff=Backoff(first=0.001, most=0.001),
            done=lambda shipment, error: self.done.put_nowait((shipment, error)),
        )

    def add(self, data: bytes) -> Shipment:
        sha256 = hashlib.sha256(data).hexdigest()
        self.snapshots.path(sha256).write_bytes(data)
        return Shipment(KEY, len(data), sha256)


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    # A snapshot that a test uses counts as just used, however long the test takes.
    monkeypatch.setattr(disk, "SETTLE_SECONDS", HANG_SECONDS)
    return Node(tmp_path)


@pytest.mark.merge
async def test_shipments_arrive_whatever_the_store_does_meanwhile(node: Node) -> None:
    shipments = [node.add(data) for data in (b"a", b"bb", b"ccc")]
    node.store.failures = [Unavailable("away"), Unavailable("still away")]
    async with Background("test") as background:
        node.shipper.start(background)
        for shipment in (*shipments, shipments[0]):
            node.shipper.ship(shipment)
        assert node.shipper.pending(KEY)
        assert {await node.done.get() for _ in shipments} == {(shipment, "") for shipment in shipments}
    assert not node.shipper.pending(KEY)
    assert node.store.puts == 3


@pytest.mark.parametrize(("size", "puts"), [(65_537, 0), (65_536, 1)])
async def test_what_the_store_has_is_not_sent_again_unless_it_is_small(node: Node, size: int, puts: int) -> None:
    data = b"a" * size
    shipment = node.add(data)
    node.store.blobs[shipment.sha256] = data
    async with Background("test") as background:
        node.shipper.start(background)
        node.shipper.ship(shipment)
        assert await node.done.get() == (shipment, "")
    assert node.store.puts == puts


async def test_deleted_and_corrupt_snapshots_are_given_up(node: Node) -> None:
    deleted, corrupt = node.add(b"a"), node.add(b"bb")
    node.snapshots.forget([deleted.sha256])
    node.snapshots.path(corrupt.sha256).write_bytes(b"bX")
    async with Background("test") as background:
        node.shipper.start(background)
        node.shipper.ship(deleted)
        node.shipper.ship(corrupt)
        assert {await node.done.get(), await node.done.get()} == {
            (deleted, "it is not on this node any more"),
            (corrupt, "not what its hash promises"),
        }
    assert node.snapshots.hashes() == []


@pytest.mark.merge
@pytest.mark.parametrize("refusal", [Exhausted("too big"), DataLoss("damaged on its way"), OSError("too many files")])
async def test_a_store_that_refuses_is_asked_a_few_times_only(node: Node, refusal: Exception) -> None:
    shipment, other = node.add(b"a"), node.add(b"bb")
    async with Background("test") as background:
        node.shipper.start(background)
        node.store.failures = [refusal] * (REFUSALS - 1)
        node.shipper.ship(shipment)
        assert await node.done.get() == (shipment, "")
        node.store.failures = [refusal] * REFUSALS
        node.shipper.ship(other)
        assert await node.done.get() == (other, str(refusal))
    assert node.snapshots.hashes() == sorted([shipment.sha256, other.sha256])


@pytest.mark.merge
@pytest.mark.parametrize("error", [Unavailable("away"), TimedOut("silent")])
async def test_a_store_that_is_away_is_waited_for(node: Node, error: HopyardError) -> None:
    shipment = node.add(b"a")
    node.store.failures = [error] * (4 * REFUSALS)
    async with Background("test") as background:
        node.shipper.start(background)
        node.shipper.ship(shipment)
        assert await node.done.get() == (shipment, "")


async def test_shipments_of_a_forgotten_run_say_nothing(node: Node) -> None:
    node.store.gate.clear()
    unwanted, wanted = node.add(b"a"), node.add(b"bb")
    other = Shipment(RunKey(StreamId("e"), "other", 1, 0), 2, wanted.sha256)
    async with Background("test") as background:
        node.shipper.start(background)
        node.shipper.ship(unwanted)
        node.shipper.ship(other)
        node.shipper.forget(KEY)
        node.store.gate.set()
        assert await node.done.get() == (other, "")
    assert node.done.empty()


async def test_a_snapshot_in_use_is_deleted_when_it_is_not_any_more(node: Node) -> None:
    shipment = node.add(b"a")
    with node.snapshots.use(shipment.sha256) as path:
        with node.snapshots.use(shipment.sha256):
            node.snapshots.forget([shipment.sha256])
            assert node.snapshots.hashes() == []
        assert path.is_file()
    assert not path.exists()


async def test_a_deletion_that_waits_is_taken_back_by_a_new_use(node: Node) -> None:
    shipment = node.add(b"a")
    with node.snapshots.use(shipment.sha256) as path:
        node.snapshots.forget([shipment.sha256])
        await node.snapshots.fetch(shipment.sha256, [])
    assert path.is_file()


async def test_a_snapshot_nobody_has_names_everyone_who_was_asked(node: Node) -> None:
    with pytest.raises(NotFound, match=r"cannot be got: .*port.*; store: no blob"):
        await node.snapshots.fetch("0" * 64, ["no-port"])


def aged(node: Node, data: bytes, seconds: float) -> str:
    """Add a snapshot that was last used a number of seconds ago. Return its hash."""
    sha256 = node.add(data).sha256
    then = time.time() - scaled(seconds)
    os.utime(node.snapshots.path(sha256), (then, then))
    return sha256


async def test_room_is_made_by_copies_of_what_is_stored_used_longest_ago_first(node: Node) -> None:
    hashes = [aged(node, bytes([48 + number]) * 10, 500 - 100 * number) for number in range(4)]
    unstored = aged(node, b"x" * 10, 900)
    for sha256 in hashes:
        node.store.blobs[sha256] = b""
    assert await node.snapshots.make_room(50) == ([], 0)
    with node.snapshots.use(hashes[0]):  # a use counts even after its end
        pass
    assert await node.snapshots.make_room(30) == (hashes[1:3], 0)
    assert node.snapshots.hashes() == sorted([hashes[0], hashes[3], unstored])
    assert await node.snapshots.make_room(0) == ([hashes[3]], 20)  # the first was just used
    assert node.snapshots.hashes() == sorted([hashes[0], unstored])


async def test_what_is_busy_stays(node: Node) -> None:
    used, told, shipped, refused = (aged(node, name.encode(), 900) for name in ("used", "told", "ship", "full"))
    for sha256 in (used, told, shipped, refused):
        node.store.blobs[sha256] = b""
    node.snapshots.announcement_pending = lambda sha256: sha256 == told
    node.snapshots.shipping = lambda sha256: sha256 == shipped
    # A refused upload: the store's copy may belong to another experiment, which may delete it.
    node.snapshots.taken(refused, "x")
    with node.snapshots.use(used):
        then = time.time() - scaled(900)
        os.utime(node.snapshots.path(used), (then, then))
        assert await node.snapshots.make_room(0) == ([], 16)
        assert [one.sha256 for one in await node.snapshots.idle(600)] == [refused]
    assert await node.snapshots.make_room(0) == ([used], 12)


async def test_no_room_is_made_while_the_store_is_away(node: Node) -> None:
    sha256 = aged(node, b"a", 900)
    node.store.failures = [Unavailable("away")]
    with pytest.raises(Unavailable):
        await node.snapshots.make_room(0)
    assert node.snapshots.hashes() == [sha256]


async def test_what_made_room_is_fetched_again_when_it_is_needed(node: Node) -> None:
    sha256 = aged(node, b"state", 900)
    node.store.blobs[sha256] = b"state"
    assert await node.snapshots.make_room(0) == ([sha256], 0)
    with node.snapshots.use(sha256) as path:
        await node.snapshots.fetch(sha256, [])
        assert path.read_bytes() == b"state"
        assert await node.snapshots.make_room(0) == ([], 5)


async def test_a_shipment_whose_copy_made_room_is_stored_already(node: Node) -> None:
    shipment = node.add(b"a")
    node.snapshots.path(shipment.sha256).unlink()
    node.store.blobs[shipment.sha256] = b"a"
    async with Background("test") as background:
        node.shipper.start(background)
        node.shipper.ship(shipment)
        assert await node.done.get() == (shipment, "")


async def test_old_partial_files_are_found(node: Node) -> None:
    partial = node.snapshots.folder / ".packing.partial"
    partial.write_bytes(b"half")
    assert await node.snapshots.idle(0) == []
    then = time.time() - scaled(700)
    os.utime(partial, (then, then))
    assert [(one.path, one.sha256, one.size) for one in await node.snapshots.idle(600)] == [(partial, "", 4)]


class Folders:
    """Adds snapshots as trainers write them: as folders."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def add(self, content: bytes, seconds: float = 0.0) -> str:
        """Add a snapshot that was last used a number of seconds ago. Return its hash."""
        folder = self._node.snapshots.folder / ".saving"
        (folder / "state").mkdir(parents=True)
        (folder / "state" / "weights").write_bytes(content)
        sha256 = hash_folder(folder).sha256
        target = folder.rename(self._node.snapshots.path(sha256))
        then = time.time() - scaled(seconds)
        os.utime(target, (then, then))
        return sha256


@pytest.fixture
def folders(node: Node) -> Folders:
    return Folders(node)


async def test_a_folder_is_shipped_packed(node: Node, folders: Folders) -> None:
    shipment = Shipment(KEY, 1, folders.add(b"weights"))
    async with Background("test") as background:
        node.shipper.start(background)
        node.shipper.ship(shipment)
        assert await node.done.get() == (shipment, "")
    assert hashlib.sha256(node.store.blobs[shipment.sha256]).hexdigest() == shipment.sha256


async def test_a_folder_that_changed_is_given_up(node: Node, folders: Folders) -> None:
    shipment = Shipment(KEY, 1, folders.add(b"weights"))
    (node.snapshots.path(shipment.sha256) / "state" / "weights").write_bytes(b"others")
    async with Background("test") as background:
        node.shipper.start(background)
        node.shipper.ship(shipment)
        assert await node.done.get() == (shipment, "not what its hash promises")
    assert node.snapshots.hashes() == []


async def test_folders_make_room_and_are_let_go_like_files(node: Node, folders: Folders) -> None:
    stored, wanted = folders.add(b"0123456789", 900), folders.add(b"01234", 900)
    node.store.blobs[stored] = b""
    assert await node.snapshots.size_bytes() == 15
    assert [(one.sha256, one.size) for one in await node.snapshots.idle(600)] == [(stored, 10), (wanted, 5)]
    assert await node.snapshots.make_room(5) == ([stored], 0)
    assert node.snapshots.hashes() == [wanted]
    with node.snapshots.use(wanted) as path:
        node.snapshots.forget([wanted])
        assert path.is_dir()
    assert node.snapshots.hashes() == []
    await node.snapshots.close()
    assert list(node.snapshots.folder.iterdir()) == []


async def test_folders_are_looked_into_once_and_beside_the_event_loop(
    node: Node, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[tuple[str, bool]] = []

    def size_of(path: Path) -> int:
        looked.append((path.name, threading.current_thread() is threading.main_thread()))
        return snapshot_folder.size_of(path)

    monkeypatch.setattr(disk, "size_of", size_of)
    first = folders.add(b"0123456789", 900)
    assert await node.snapshots.make_room(5) == ([], 5)
    second = folders.add(b"01234", 900)
    assert [one.size for one in await node.snapshots.idle(0)] == [10, 5]
    assert await node.snapshots.size_bytes() == 15
    assert looked == [(first, False), (second, False)]


class UsedMeanwhile(ScriptedStore):
    """Simulates a process that takes all snapshots anew, and has not reported them, while the store answers which ones it has."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    async def stored(self, hashes: Sequence[str], owner: str = "") -> set[str]:
        for sha256 in hashes:
            os.utime(self._folder / sha256)
        return set(hashes)


async def test_what_was_taken_anew_while_room_is_made_stays(node: Node, folders: Folders) -> None:
    sha256 = folders.add(b"0123456789", 900)
    later = Snapshots(node.snapshots.folder, UsedMeanwhile(node.snapshots.folder), tickets=AnyTicket())
    assert await later.make_room(0) == ([], 10)
    assert later.hashes() == [sha256]


async def test_what_is_about_to_be_deleted_takes_no_room(node: Node, folders: Folders) -> None:
    gone, stays = folders.add(b"0123456789", 900), folders.add(b"01234", 800)
    node.store.blobs = {gone: b"", stays: b""}
    node.snapshots.forget([gone])
    assert await node.snapshots.make_room(5) == ([], 0)
    assert node.snapshots.hashes() == [stays]
