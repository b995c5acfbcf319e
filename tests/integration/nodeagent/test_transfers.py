"""Tests of transfers whose other side stops sending: the next source is tried, and no partial file is left."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from hopyard._net.rpc import Backoff, retry
from hopyard._net.server import Server
from hopyard._runtime.snapshot_folder import hash_folder
from hopyard.errors import DataLoss, Exhausted, TimedOut, Unavailable
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc, node_agent_pb2, node_agent_pb2_grpc
from hopyard_nodeagent import servicer
from hopyard_nodeagent.cluster_access import ClusterAccess
from hopyard_nodeagent.snapshots import peers
from hopyard_nodeagent.snapshots.bulk_transfer import BulkSender
from hopyard_nodeagent.snapshots.disk import Snapshots
from hopyard_nodeagent.snapshots.store import BlobClient
from hopyard_nodeagent.snapshots.transfers import Fetched
from tests.access import AcceptEveryone, AnyTicket
from tests.integration.nodeagent.fakes import FakeStore
from tests.timing import HANG_SECONDS

DATA = b"a packed snapshot"
SHA256 = hashlib.sha256(DATA).hexdigest()
NO_SCHEDULER = ClusterAccess("", Path())
IDLE = 0.1
BACKOFF = Backoff(first=0.001, most=0.001)


class SilentPeer(node_agent_pb2_grpc.NodeAgentServiceServicer):
    """A peer that sends the first `sends` bytes of the snapshot, then nothing until its caller cancels."""

    def __init__(self, sends: int) -> None:
        self.sends = sends
        self.silent, self.left = asyncio.Event(), asyncio.Event()

    async def FetchSnapshot(
        self, request: node_agent_pb2.FetchSnapshotRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[node_agent_pb2.FetchSnapshotResponse]:
        if self.sends:
            yield node_agent_pb2.FetchSnapshotResponse(data=DATA[: self.sends])
        if self.sends < len(DATA):
            self.silent.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()


class SilentStore(FakeStore):
    """A store that answers whether it has a blob, but never completes a download or an upload."""

    async def GetBlob(
        self, request: appstat_pb2.GetBlobRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[appstat_pb2.GetBlobResponse]:
        yield appstat_pb2.GetBlobResponse(data=DATA[:3])
        await asyncio.Event().wait()

    async def PutBlob(
        self, request_iterator: AsyncIterator[appstat_pb2.PutBlobRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> appstat_pb2.PutBlobResponse:
        await asyncio.Event().wait()
        raise AssertionError("nobody waits for that")


class HastyStore(FakeStore):
    """A store that answers an upload before it has read any of it."""

    async def PutBlob(
        self, request_iterator: AsyncIterator[appstat_pb2.PutBlobRequest], context: grpc.aio.ServicerContext[Any, Any]
    ) -> appstat_pb2.PutBlobResponse:
        if self.refuses:
            raise Exhausted("bigger than the test's store allows")
        return appstat_pb2.PutBlobResponse()


class Servers:
    """Starts fake peers and stores; the fixture stops them after the test."""

    def __init__(self) -> None:
        self.started: list[Server] = []

    async def peer(self, sends: int) -> tuple[SilentPeer, str]:
        peer, server = SilentPeer(sends), Server("agent", authenticator=AcceptEveryone("ticket", "FetchSnapshot"))  # type: ignore[abstract]
        server.add(node_agent_pb2_grpc.add_NodeAgentServiceServicer_to_server, peer, servicer.SERVICE)
        self.started.append(server)
        return peer, await server.start()

    async def store(self, store: FakeStore) -> str:
        server = Server("appstat")
        server.add(appstat_pb2_grpc.add_AppStatServiceServicer_to_server, store, "hopyard.v1.AppStatService")
        self.started.append(server)
        return await server.start()


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    servers = Servers()
    yield servers
    for server in servers.started:
        await server.stop(grace=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "snapshots").mkdir()
    return tmp_path / "snapshots"


@pytest.fixture
async def pass_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """A function that advances the clock of the event loop by some seconds."""
    loop = asyncio.get_running_loop()

    def pass_by(seconds: float) -> None:
        before = loop.time
        monkeypatch.setattr(loop, "time", lambda: before() + seconds)

    return pass_by


def arrived(folder: Path) -> bool:
    """Return whether the bytes that the peer sent are on the disk."""
    return [file.stat().st_size for file in folder.iterdir()] == [5]


async def test_a_silent_peer_is_left_for_the_next_one(
    servers: Servers, folder: Path, pass_by: Callable[[float], None]
) -> None:
    mute, mute_address = await servers.peer(sends=0)
    stuck, stuck_address = await servers.peer(sends=5)
    _, good_address = await servers.peer(sends=len(DATA))
    snapshots = Snapshots(
        folder, BlobClient("127.0.0.1:9", NO_SCHEDULER), tickets=AnyTicket(), idle_seconds=HANG_SECONDS
    )
    fetching = asyncio.create_task(snapshots.fetch(SHA256, [mute_address, stuck_address, good_address]))
    await mute.silent.wait()
    pass_by(HANG_SECONDS + 1)
    await stuck.silent.wait()
    while not arrived(folder):  # noqa: ASYNC110 (a thread writes it)
        await asyncio.sleep(0.01)
    pass_by(HANG_SECONDS + 1)
    await fetching
    assert os.listdir(folder) == [SHA256]
    assert snapshots.path(SHA256).read_bytes() == DATA
    for peer in (mute, stuck):
        await peer.left.wait()


class Holder(node_agent_pb2_grpc.NodeAgentServiceServicer):
    """A peer that sends the snapshot at a path for any request, and records its callers' connections and what they requested."""

    def __init__(self, path: Path, outlet: BulkSender | None) -> None:
        self.path = path
        self.outlet = outlet
        self.callers: set[str] = set()
        self.asked: list[bool] = []

    async def FetchSnapshot(
        self, request: node_agent_pb2.FetchSnapshotRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[node_agent_pb2.FetchSnapshotResponse]:
        self.callers.add(context.peer())
        self.asked.append(request.aside)
        async for response in peers.responses(self.path, request, self.outlet):
            yield response


class Elsewhere(BulkSender):
    """A bulk sender that announces an address on which nobody listens."""

    @property
    def free(self) -> bool:
        return True

    @property
    def port(self) -> int:
        return 9


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    saved = tmp_path / "saved"
    (saved / "state").mkdir(parents=True)
    (saved / "state" / "weights").write_bytes(os.urandom(3_000_000))
    (saved / "hopyard.json").write_text("{}")
    return saved


@pytest.mark.parametrize(
    ("kind", "asked"), [(BulkSender, [True, True, True]), (Elsewhere, [True, False, False, False]), (None, [True] * 3)]
)
async def test_a_folder_hops_as_a_folder_over_one_connection(
    servers: Servers, folder: Path, saved: Path, kind: type[BulkSender] | None, asked: list[bool]
) -> None:
    """Show that a folder is sent over a separate connection, or by the call itself if that connection cannot be made."""
    outlet = kind("127.0.0.1", idle_seconds=HANG_SECONDS) if kind is not None else None
    holder = Holder(saved, outlet)  # type: ignore[abstract]
    server = Server("agent", authenticator=AcceptEveryone("ticket", "FetchSnapshot"))
    server.add(node_agent_pb2_grpc.add_NodeAgentServiceServicer_to_server, holder, servicer.SERVICE)
    servers.started.append(server)
    address = await server.start()
    snapshots = Snapshots(folder, BlobClient("127.0.0.1:9", NO_SCHEDULER), tickets=AnyTicket())
    if outlet is not None:
        outlet.start()
    for content in (b"one", b"two"):
        (saved / "state" / "number").write_bytes(content)
        info = hash_folder(saved)
        assert await snapshots.fetch(info.sha256, [address]) == Fetched(info.size)
        assert hash_folder(folder / info.sha256) == info
        assert (folder / info.sha256 / "state" / "number").read_bytes() == content
    assert len(holder.callers) == 1
    with pytest.raises(Unavailable, match=f"sent [0-9]+ bytes with the hash [0-9a-f]+; expected {SHA256}"):
        await snapshots.fetch(SHA256, [address])
    assert len(os.listdir(folder)) == 2
    assert holder.asked == asked
    await snapshots.close()
    if outlet is not None:
        outlet.stop()


async def test_the_path_of_another_computers_socket_is_not_opened(
    servers: Servers, tmp_path: Path, folder: Path, saved: Path
) -> None:
    outlet = BulkSender(tmp_path / "s", idle_seconds=HANG_SECONDS)
    outlet.start()
    server = Server(
        "agent",
        host="127.0.0.1",
        insecure=True,
        authenticator=AcceptEveryone("ticket", "FetchSnapshot"),
    )
    server.add(
        node_agent_pb2_grpc.add_NodeAgentServiceServicer_to_server,
        Holder(saved, outlet),  # type: ignore[abstract]
        servicer.SERVICE,
    )
    servers.started.append(server)
    address = await server.start()
    opened: list[object] = []
    found = peers.Peers(AnyTicket(), idle_seconds=0.2)
    found._threads.submit = lambda *call: opened.append(call)  # type: ignore[method-assign,assignment]
    with pytest.raises(TimedOut):
        await found.fetch(address, hash_folder(saved).sha256, folder / "taken")
    assert opened == []
    await found.close()
    outlet.stop()


async def test_a_port_that_could_not_be_reached_is_tried_again_after_ten_minutes(
    servers: Servers, folder: Path, saved: Path
) -> None:
    holder = Holder(saved, Elsewhere("127.0.0.1", idle_seconds=HANG_SECONDS))  # type: ignore[abstract]
    server = Server("agent", authenticator=AcceptEveryone("ticket", "FetchSnapshot"))
    server.add(node_agent_pb2_grpc.add_NodeAgentServiceServicer_to_server, holder, servicer.SERVICE)
    servers.started.append(server)
    address = await server.start()
    sha256, now = hash_folder(saved).sha256, [1000.0]
    found = peers.Peers(AnyTicket(), idle_seconds=HANG_SECONDS, clock=lambda: now[0])
    for number, later in enumerate((0.0, 599.0, 1.0)):
        now[0] += later
        await found.fetch(address, sha256, folder / str(number))
    assert holder.asked == [True, False, False, True, False]
    await found.close()


async def test_after_silent_peers_the_store_is_asked(servers: Servers, folder: Path) -> None:
    _, peer = await servers.peer(sends=5)
    blobs = FakeStore()  # type: ignore[abstract]
    blobs.add(DATA)
    store = BlobClient(await servers.store(blobs), NO_SCHEDULER)
    await Snapshots(folder, store, tickets=AnyTicket(), idle_seconds=IDLE).fetch(SHA256, [peer])
    await store.close()
    assert (folder / SHA256).read_bytes() == DATA


async def test_a_silent_store_neither_gives_nor_takes_for_ever(servers: Servers, folder: Path, tmp_path: Path) -> None:
    address = await servers.store(SilentStore())  # type: ignore[abstract]
    store = BlobClient(address, NO_SCHEDULER, idle_seconds=IDLE, storing_seconds=IDLE)
    snapshots = Snapshots(folder, store, tickets=AnyTicket(), idle_seconds=IDLE)
    with pytest.raises(Unavailable, match=r"store: the snapshot store was silent for too long"):
        await snapshots.fetch(SHA256, [])
    assert os.listdir(folder) == []
    small, big = tmp_path / "small", tmp_path / "big"
    small.write_bytes(DATA)
    big.write_bytes(bytes(32 * 1024 * 1024))  # More than the network buffers while nobody reads.
    for file in (small, big):
        with pytest.raises(TimedOut, match="the snapshot store was silent"):
            await store.put(file, SHA256, "e")
    await store.close()


@pytest.mark.parametrize("size", [10, 5_000_000])
async def test_what_the_store_answers_early_is_heard(servers: Servers, tmp_path: Path, size: int) -> None:
    hasty = HastyStore()  # type: ignore[abstract]
    store = BlobClient(await servers.store(hasty), NO_SCHEDULER)
    file = tmp_path / "file"
    file.write_bytes(bytes(size))
    for _ in range(20):
        hasty.refuses = False
        await retry(lambda: store.put(file, SHA256, "e"), deadline=HANG_SECONDS, backoff=BACKOFF)
        hasty.refuses = True
        with pytest.raises(Exhausted, match="bigger than the test's store allows"):
            await retry(lambda: store.put(file, SHA256, "e"), deadline=HANG_SECONDS, backoff=BACKOFF)
    await store.close()


async def test_a_file_that_cannot_be_read_ends_its_transfer_with_the_reason(servers: Servers, tmp_path: Path) -> None:
    store = BlobClient(await servers.store(FakeStore()), NO_SCHEDULER)  # type: ignore[abstract]
    with pytest.raises(FileNotFoundError):
        await store.put(tmp_path / "nothing", SHA256, "e")
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(DataLoss, match=r"is damaged on this node: .*link is neither a file nor a folder"):
        await store.put(tmp_path, SHA256, "e")
    await store.close()
