"""Tests of deletions with equal hashes: a newly taken snapshot survives the deletion of an old one with the same hash."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard._net.rpc import Backoff
from hopyard._net.rpc.values import run_key_to_proto
from hopyard._net.server import Background
from hopyard.errors import Exhausted, Unavailable
from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import application_pb2, common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from hopyard_nodeagent.runs.registry import Runs
from hopyard_nodeagent.runs.run import NodeRun
from hopyard_nodeagent.runs.training_process import Runner, Sink
from hopyard_nodeagent.snapshots.disk import Snapshots
from hopyard_nodeagent.snapshots.references import SnapshotReferences
from hopyard_nodeagent.snapshots.uploads import Uploader
from tests.access import AnyTicket
from tests.unit.nodeagent.fakes import ScriptedExecutor, ScriptedStore

pytestmark = pytest.mark.quick

KEY = RunKey(StreamId("e"), "j", 2, 0)
DATA = b"state at position 5"
SHA256 = hashlib.sha256(DATA).hexdigest()
SNAPSHOT = common_pb2.Snapshot(position=5, sha256=SHA256, size_bytes=len(DATA))
TAKEN = application_pb2.AttachRequest(snapshot_taken=wire.SnapshotTaken(snapshot=SNAPSHOT))


class Node:
    """An agent's runs, snapshots and uploader, with one run. The test acts as the process of the run and as the scheduler."""

    def __init__(self, folder: Path, background: Background, start: wire.StartRun | None = None) -> None:
        self.store = ScriptedStore()
        self.needs = folder.with_name("needs")
        self.needs.mkdir()
        self.snapshots = Snapshots(folder, self.store, SnapshotReferences(self.needs), tickets=AnyTicket())
        self.executor = ScriptedExecutor()
        self.changed = asyncio.Event()
        self.runs = Runs("n", self.executor, self.snapshots, background, changed=lambda run: self.changed.set())
        self.shipper = Uploader(
            self.snapshots, self.store, backoff=Backoff(first=0.001, most=0.001), done=self.runs.shipped
        )
        self.runs.shipper = self.shipper
        self.shipper.start(background)
        start = start or wire.StartRun(slot="n/0")
        self.runs.command(wire.RunCommand(run=run_key_to_proto(KEY), sequence=1, start=start))
        self.run = self.runs.all()[0]

    @property
    def file(self) -> Path:
        return self.snapshots.path(SHA256)

    async def take(self) -> None:
        """Write the snapshot and report it, as the process does."""
        self.file.write_bytes(DATA)
        await self.executor.say(TAKEN)

    async def next_message(self) -> wire.RunMessage:
        """Wait for the next message of the run to the scheduler, and return it."""
        while (message := self.run.outgoing.take()) is None:
            self.changed.clear()
            await self.changed.wait()
        return self.run.numbered(message)

    async def idle(self) -> None:
        """Run the event loop until no task can continue."""
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "snapshots").mkdir()
    return tmp_path / "snapshots"


@pytest.fixture
async def node(folder: Path) -> AsyncIterator[Node]:
    async with Background("test") as background:
        node = Node(folder, background)
        yield node
        await node.runs.stop()


async def test_a_snapshot_is_shipped_only_when_the_message_that_tells_of_it_is_acknowledged(node: Node) -> None:
    await node.take()
    assert (await node.next_message()).snapshot_taken.snapshot.sha256 == SHA256
    await node.idle()
    assert node.store.asked == 0
    node.runs.acknowledged(KEY, 1)
    stored = (await node.next_message()).snapshot_stored
    assert (stored.position, stored.sha256, stored.error) == (5, SHA256, "")
    assert (node.store.blobs, node.store.owned) == ({SHA256: DATA}, {(SHA256, "e")})


async def test_the_last_snapshot_is_shipped_when_the_end_is_acknowledged_and_then_the_run_is_forgotten(
    node: Node,
) -> None:
    node.file.write_bytes(DATA)
    node.executor.end.set_result(wire.RunEnded(reason=common_pb2.RUN_END_REASON_SUSPENDED, snapshot=SNAPSHOT))
    assert (await node.next_message()).HasField("ended")
    await node.idle()
    assert node.store.asked == 0
    node.runs.acknowledged(KEY, 1)
    assert node.runs.all() == [node.run]
    assert (await node.next_message()).HasField("snapshot_stored")
    node.runs.acknowledged(KEY, 2)
    assert node.runs.all() == []


async def test_a_copy_makes_no_room_before_the_store_has_it_for_all_that_took_it_here(folder: Path) -> None:
    async with Background("test") as background:
        node = Node(folder, background, wire.StartRun(slot="n/0", ships_by_order=True))
        await node.take()
        await node.next_message()
        node.runs.acknowledged(KEY, 1)
        await node.idle()
        assert node.store.asked == 0
        os.utime(node.file, (0, 0))  # not used for a long time
        # The store has the bytes for another experiment, which may delete them at any time.
        node.store.blobs[SHA256] = DATA
        assert await node.snapshots.make_room(0) == ([], len(DATA))
        node.store.owned.add((SHA256, "another"))
        restarted = Snapshots(folder, node.store, SnapshotReferences(node.needs), tickets=AnyTicket())
        await restarted.fetch(SHA256, [], "third")
        assert await restarted.make_room(0) == ([], len(DATA))
        node.store.owned.add((SHA256, "e"))  # uploaded by an order of the scheduler
        assert await restarted.make_room(0) == ([], len(DATA))
        node.store.owned.add((SHA256, "third"))
        assert await restarted.make_room(0) == ([SHA256], 0)
        assert list(node.needs.iterdir()) == []
        await node.runs.stop()


async def test_a_deletion_does_not_touch_what_an_unacknowledged_message_names(node: Node) -> None:
    await node.take()
    node.snapshots.forget([SHA256])  # the message is not sent yet
    assert node.file.is_file()
    await node.next_message()
    node.snapshots.forget([SHA256])  # the message is sent, but not acknowledged
    assert node.file.is_file()
    assert node.snapshots.hashes() == [SHA256]
    node.runs.acknowledged(KEY, 1)
    await node.next_message()
    node.runs.acknowledged(KEY, 2)
    node.snapshots.forget([SHA256])
    assert not node.file.exists()


async def test_a_deletion_does_not_touch_the_last_snapshot_before_its_end_is_acknowledged(node: Node) -> None:
    node.file.write_bytes(DATA)
    node.executor.end.set_result(wire.RunEnded(reason=common_pb2.RUN_END_REASON_SUSPENDED, snapshot=SNAPSHOT))
    await node.next_message()
    node.snapshots.forget([SHA256])
    assert node.file.is_file()


async def test_a_deletion_that_waits_for_a_user_does_not_take_what_was_taken_meanwhile(node: Node) -> None:
    node.file.write_bytes(DATA)
    with node.snapshots.use(SHA256):
        node.snapshots.forget([SHA256])
        await node.take()
        await node.next_message()
        node.runs.acknowledged(KEY, 1)
        await node.next_message()
    assert node.file.is_file()


@pytest.mark.merge
async def test_a_snapshot_that_nobody_needs_any_more_is_deleted_although_its_shipment_waits(node: Node) -> None:
    """Check this because the scheduler orders a deletion once: a snapshot that is kept now would stay for ever."""
    node.store.gate.clear()
    node.store.failures = [Unavailable("away")]
    await node.take()
    await node.next_message()
    node.runs.acknowledged(KEY, 1)
    node.snapshots.forget([SHA256])
    assert not node.file.exists()
    node.store.gate.set()
    said = (await node.next_message()).snapshot_stored
    assert (said.sha256, said.error) == (SHA256, "it is not on this node any more")
    assert node.store.blobs == {}


@pytest.mark.merge
async def test_a_snapshot_that_cannot_be_stored_is_given_up_with_a_word(node: Node) -> None:
    node.store.failures = [Exhausted("more than the 5 bytes that are allowed")] * 9
    await node.take()
    await node.next_message()
    node.runs.acknowledged(KEY, 1)
    said = (await node.next_message()).snapshot_stored
    assert (said.position, said.sha256) == (5, SHA256)
    assert said.error == "more than the 5 bytes that are allowed"
    assert node.file.is_file()
    node.executor.end.set_result(wire.RunEnded(reason=common_pb2.RUN_END_REASON_TERMINATED))
    await node.next_message()
    node.runs.acknowledged(KEY, 3)
    assert node.runs.all() == []


class EndedRunner(Runner):
    """A runner whose run ends at once, with a snapshot."""

    def __init__(self) -> None:
        pass

    async def execute(self, start: application_pb2.ApplicationStart, sink: Sink) -> wire.RunEnded:
        return wire.RunEnded(reason=common_pb2.RUN_END_REASON_SUSPENDED, snapshot=SNAPSHOT)


async def test_a_deletion_between_the_last_save_and_the_word_of_it_touches_nothing(tmp_path: Path) -> None:
    run = NodeRun(KEY, wire.StartRun(), "n", clock=lambda: 0.0)
    assert not run.announcement_pending(SHA256)
    ended = await run.make(EndedRunner(), application_pb2.ApplicationStart(), lambda request: None)
    # The end is not reported yet, while scratch files are removed and the slot is freed.
    assert run.announcement_pending(SHA256)
    run.end(ended)
    assert run.announcement_pending(SHA256)
    message = run.outgoing.take()
    assert message is not None
    run.outgoing.acknowledged(message.sequence)
    assert not run.announcement_pending(SHA256)
