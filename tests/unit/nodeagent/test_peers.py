"""Tests of the transfer of snapshots between nodes."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from hopyard._runtime.snapshot_file import SnapshotFileInfo, hash_file
from hopyard._runtime.snapshot_folder import FolderWriter, hash_folder, members
from hopyard.errors import NotFound, Unavailable
from hopyard.v1 import node_agent_pb2 as wire
from hopyard_nodeagent.snapshots.bulk_transfer import BulkSender, Unreachable, take
from hopyard_nodeagent.snapshots.peers import responses
from tests.timing import HANG_SECONDS

UNPACKED = wire.FetchSnapshotRequest(unpacked=True)
ASIDE = wire.FetchSnapshotRequest(unpacked=True, aside=True)
PACKED = wire.FetchSnapshotRequest()
SIZE = 2**20 + 5


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    folder = tmp_path / "snapshot"
    (folder / "state").mkdir(parents=True)
    (folder / "state" / "weights").write_bytes(bytes(2**20 + 3))
    (folder / "hopyard.json").write_text("{}")
    return folder


@pytest.fixture(params=["TCP", "Unix"])
async def outlet(request: pytest.FixtureRequest) -> AsyncIterator[BulkSender]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshots.sock"
        outlet = BulkSender("127.0.0.1" if request.param == "TCP" else path, idle_seconds=HANG_SECONDS)
        outlet.start()
        yield outlet
        outlet.stop()
        assert not path.exists()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


@pytest.fixture
def accepted(monkeypatch: pytest.MonkeyPatch) -> list[socket.socket]:
    """The connections that this process has accepted."""
    found: list[socket.socket] = []
    accept = socket.socket.accept

    def noted(listener: socket.socket) -> tuple[socket.socket, object]:
        connection, address = accept(listener)
        found.append(connection)
        return connection, address

    monkeypatch.setattr(socket.socket, "accept", noted)
    return found


async def closed(connection: socket.socket) -> None:
    """Wait until a thread has closed a connection."""
    async with asyncio.timeout(HANG_SECONDS):
        while connection.fileno() != -1:  # noqa: ASYNC110 (a thread closes it)
            await asyncio.sleep(0.01)


async def test_a_folder_goes_unpacked_to_whoever_takes_it_so(snapshot: Path) -> None:
    first, *others = [response async for response in responses(snapshot, UNPACKED, None)]
    assert [(one.name, one.size, one.folder) for one in first.members] == [
        (b"hopyard.json", 2, False),
        (b"state", 0, True),
        (b"state/weights", 2**20 + 3, False),
    ]
    assert [len(one.data) for one in others] == [2**20, 5]


async def test_a_folder_goes_packed_to_everybody_else(snapshot: Path, tmp_path: Path, outlet: BulkSender) -> None:
    packed = [response.data async for response in responses(snapshot, PACKED, outlet)]
    (tmp_path / "file").write_bytes(b"".join(packed))
    assert hash_file(tmp_path / "file") == hash_folder(snapshot)


async def test_what_is_not_here_is_said_to_be_not_here(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="snapshot x is not on this node"):
        await anext(aiter(responses(tmp_path / "x", UNPACKED, None)))


def offer_at(listener: socket.socket) -> wire.FetchSnapshotResponse:
    return wire.FetchSnapshotResponse(port=listener.getsockname()[1], ticket=bytes(32))


def connected(outlet: BulkSender) -> socket.socket:
    """Connect to a sender."""
    if not outlet.path:
        return socket.create_connection(("127.0.0.1", outlet.port))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(outlet.path)
    return connection


class Taking:
    """The receiver of a snapshot: writes it to a folder."""

    def __init__(self, threads: ThreadPoolExecutor, snapshot: Path, target: Path) -> None:
        target.mkdir()
        self.threads = threads
        self.writer = FolderWriter(target, members(snapshot))

    async def take(self, offer: wire.FetchSnapshotResponse, ticket: bytes = b"", size: int = SIZE) -> None:
        place = Path(offer.socket) if offer.socket else ("127.0.0.1", offer.port)
        try:
            await take(self.threads, place, ticket or offer.ticket, size, HANG_SECONDS, self.writer)
        finally:
            self.writer.close()


async def test_contents_are_given_aside_once_for_their_ticket(
    snapshot: Path, tmp_path: Path, outlet: BulkSender, threads: ThreadPoolExecutor
) -> None:
    sent = responses(snapshot, ASIDE, outlet)
    offer = await anext(aiter(sent))
    assert len(offer.members) == 3
    other = offer.ticket[:31] + bytes([offer.ticket[31] ^ 1])
    for number, ticket in enumerate((bytes(32), other)):
        with pytest.raises(Unavailable, match=f"hung up {SIZE} bytes before the end"):
            await Taking(threads, snapshot, tmp_path / str(number)).take(offer, ticket)
    taking = Taking(threads, snapshot, tmp_path / "taken")
    await taking.take(offer)
    assert taking.writer.finish() == hash_folder(snapshot)
    assert [response async for response in sent] == []
    with pytest.raises(Unavailable, match="hung up"):
        await Taking(threads, snapshot, tmp_path / "again").take(offer)


async def test_contents_go_with_the_call_when_as_many_take_as_may(snapshot: Path, outlet: BulkSender) -> None:
    open_calls = [responses(snapshot, ASIDE, outlet) for _ in range(8)]
    assert all([(await anext(aiter(call))).ticket for call in open_calls])
    more = [response async for response in responses(snapshot, ASIDE, outlet)]
    assert not more[0].ticket
    assert sum(len(response.data) for response in more) == SIZE
    for call in open_calls:
        await call.aclose()
    assert outlet.free


async def test_where_no_port_can_be_opened_contents_go_with_the_call(snapshot: Path) -> None:
    outlet = BulkSender("no.such.host.invalid", idle_seconds=HANG_SECONDS)
    outlet.start()
    found = [response async for response in responses(snapshot, ASIDE, outlet)]
    outlet.stop()
    assert found[0].port == 0
    assert sum(len(response.data) for response in found) == SIZE


async def test_an_offer_is_good_while_the_call_is_open(
    snapshot: Path, tmp_path: Path, outlet: BulkSender, threads: ThreadPoolExecutor
) -> None:
    sent = responses(snapshot, ASIDE, outlet)
    offer = await anext(aiter(sent))
    await sent.aclose()
    with pytest.raises(Unavailable, match="hung up"):
        await Taking(threads, snapshot, tmp_path / "taken").take(offer)


async def test_a_file_that_has_become_shorter_is_not_given_whole(
    snapshot: Path, tmp_path: Path, outlet: BulkSender, threads: ThreadPoolExecutor
) -> None:
    offer = await anext(aiter(responses(snapshot, ASIDE, outlet)))
    (snapshot / "state" / "weights").write_bytes(b"short")
    with pytest.raises(Unavailable, match="before the end"):
        await Taking(threads, snapshot, tmp_path / "taken").take(offer)


async def test_a_transfer_that_is_cancelled_writes_no_more(
    snapshot: Path, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        taking = Taking(threads, snapshot, tmp_path / "taken")
        transfer = asyncio.create_task(taking.take(offer_at(silent)))
        silent.setblocking(False)
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(silent)
        with connection:
            connection.setblocking(False)
            assert await loop.sock_recv(connection, 100) == bytes(32)
            transfer.cancel()
            with pytest.raises(asyncio.CancelledError):
                await transfer
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, but not listening: no other process gets the port
        with pytest.raises(Unreachable, match="cannot be reached"):
            await taking.take(offer_at(held))


@pytest.mark.parametrize("turns", range(6))
async def test_every_accepted_connection_is_closed_when_the_outlet_stops(
    outlet: BulkSender, accepted: list[socket.socket], turns: int
) -> None:
    """Stop the outlet after a number of turns of the event loop: before, while and after it accepts the caller's connection."""
    with connected(outlet):
        for _ in range(turns):
            await asyncio.sleep(0)
        outlet.stop()
        await asyncio.sleep(0)
        for connection in accepted:
            await closed(connection)
    assert len(accepted) == (turns > 1)


async def test_connections_that_wait_for_a_thread_are_closed_when_the_outlet_stops(
    outlet: BulkSender, accepted: list[socket.socket]
) -> None:
    with ExitStack() as callers:
        for _ in range(8 + 3):  # without tickets, the first eight callers use all threads
            callers.enter_context(connected(outlet))
        while len(accepted) < 8 + 3:  # noqa: ASYNC110 (the event loop accepts them)
            await asyncio.sleep(0)
        outlet.stop()
        for connection in accepted:
            await closed(connection)
    outlet.stop()


async def test_the_outlet_accepts_again_after_it_could_not(
    outlet: BulkSender, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hopyard_nodeagent.snapshots.bulk_transfer._AGAIN_SECONDS", 0.01)
    accept, failures = socket.socket.accept, [OSError("too many open files"), BlockingIOError()]

    def failing(listener: socket.socket) -> object:
        if failures:
            raise failures.pop(0)
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    loop = asyncio.get_running_loop()
    with connected(outlet) as caller:
        caller.setblocking(False)
        await loop.sock_sendall(caller, bytes(32))
        async with asyncio.timeout(HANG_SECONDS):
            assert await loop.sock_recv(caller, 1) == b""
    assert caplog.text.count("too many open files") == 1


class Gated:
    """Replaces `socket.create_connection`: it returns one end of a socket pair when the test opens the gate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.near, self.far = socket.socketpair()
        self.asked, self.gate = threading.Event(), threading.Event()
        monkeypatch.setattr(socket, "create_connection", self.connect)

    def connect(self, *_: object) -> socket.socket:
        self.asked.set()
        assert self.gate.wait(HANG_SECONDS)
        return self.near


class Silent:
    """A writer whose `write` returns when the test opens the gate."""

    def __init__(self) -> None:
        self.begun, self.gate = threading.Event(), threading.Event()

    def write(self, _: bytes | memoryview, /) -> None:
        self.begun.set()
        assert self.gate.wait(HANG_SECONDS)

    def finish(self) -> SnapshotFileInfo:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def test_a_connection_that_is_made_after_the_event_loop_has_ended_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    gated = Gated(monkeypatch)

    async def cancelled(threads: ThreadPoolExecutor) -> None:
        taking = asyncio.create_task(take(threads, ("", 1), bytes(32), 1, HANG_SECONDS, Silent()))
        await asyncio.to_thread(gated.asked.wait, HANG_SECONDS)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking

    with gated.far, ThreadPoolExecutor(1) as threads:
        asyncio.run(cancelled(threads))
        gated.gate.set()
    assert gated.near.fileno() == -1


async def test_a_connection_that_is_made_after_the_threads_were_shut_down_is_closed(
    monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    gated = Gated(monkeypatch)
    taking = asyncio.create_task(take(threads, ("", 1), bytes(32), 1, HANG_SECONDS, Silent()))
    await asyncio.to_thread(gated.asked.wait, HANG_SECONDS)
    threads.shutdown(wait=False)
    gated.gate.set()
    with gated.far, pytest.raises(RuntimeError, match="after shutdown"):
        await taking
    assert gated.near.fileno() == -1


async def test_a_transfer_that_is_cancelled_twice_waits_for_its_writer(
    monkeypatch: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    gated, writer = Gated(monkeypatch), Silent()
    gated.gate.set()
    with gated.far:
        gated.far.sendall(b"!")
        taking = asyncio.create_task(take(threads, ("", 1), bytes(32), 1, HANG_SECONDS, writer))
        await asyncio.to_thread(writer.begun.wait, HANG_SECONDS)
        for _ in range(2):
            taking.cancel()
            for _ in range(10):
                await asyncio.sleep(0)
        assert not taking.done()
        assert gated.near.fileno() != -1
        writer.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await taking
    assert gated.near.fileno() == -1
