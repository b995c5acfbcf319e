"""What is sent when a snapshot hops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard.errors import NotFound, Unavailable
from hopyard.serving import Background
from hopyard.snapshotfile import hash_file
from hopyard.snapshotfolder import FolderWriter, hash_folder, members
from hopyard.v1 import node_agent_pb2 as wire
from hopyard_nodeagent.aside import Outlet, Unreachable, take
from hopyard_nodeagent.peers import responses

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


@pytest.fixture
async def outlet() -> AsyncIterator[Outlet]:
    outlet = Outlet("127.0.0.1", idle_seconds=30)
    async with Background("test") as background:
        outlet.start(background)
        yield outlet
    outlet.stop()


async def test_a_folder_goes_unpacked_to_whoever_takes_it_so(snapshot: Path) -> None:
    first, *others = [response async for response in responses(snapshot, UNPACKED, None)]
    assert [(one.name, one.size, one.folder) for one in first.members] == [
        (b"hopyard.json", 2, False),
        (b"state", 0, True),
        (b"state/weights", 2**20 + 3, False),
    ]
    assert [len(one.data) for one in others] == [2**20, 5]


async def test_a_folder_goes_packed_to_everybody_else(snapshot: Path, tmp_path: Path, outlet: Outlet) -> None:
    packed = [response.data async for response in responses(snapshot, PACKED, outlet)]
    (tmp_path / "file").write_bytes(b"".join(packed))
    assert hash_file(tmp_path / "file") == hash_folder(snapshot)


async def test_what_is_not_here_is_said_to_be_not_here(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="snapshot x is not on this node"):
        await anext(aiter(responses(tmp_path / "x", UNPACKED, None)))


class Taking:
    """Takes contents into a folder."""

    def __init__(self, snapshot: Path, target: Path) -> None:
        target.mkdir()
        self.writer = FolderWriter(target, members(snapshot))

    async def take(self, port: int, ticket: bytes, size: int = SIZE) -> None:
        try:
            await take(None, ("127.0.0.1", port), ticket, size, 30.0, self.writer)
        finally:
            self.writer.close()


async def test_contents_are_given_aside_once_for_their_ticket(snapshot: Path, tmp_path: Path, outlet: Outlet) -> None:
    sent = responses(snapshot, ASIDE, outlet)
    offer = await anext(aiter(sent))
    assert len(offer.members) == 3
    for number, ticket in enumerate((bytes(32), b"")):
        with pytest.raises(Unavailable, match=f"hung up {SIZE} bytes before the end"):
            await Taking(snapshot, tmp_path / str(number)).take(offer.port, ticket or offer.ticket[:31] + b"!")
    taking = Taking(snapshot, tmp_path / "taken")
    await taking.take(offer.port, offer.ticket)
    assert taking.writer.finish() == hash_folder(snapshot)
    assert [response async for response in sent] == []
    with pytest.raises(Unavailable, match="hung up"):
        await Taking(snapshot, tmp_path / "again").take(offer.port, offer.ticket)


async def test_contents_go_with_the_call_when_as_many_take_as_may(snapshot: Path, outlet: Outlet) -> None:
    open_calls = [responses(snapshot, ASIDE, outlet) for _ in range(8)]
    assert all([(await anext(aiter(call))).port for call in open_calls])
    more = [response async for response in responses(snapshot, ASIDE, outlet)]
    assert more[0].port == 0
    assert sum(len(response.data) for response in more) == SIZE
    for call in open_calls:
        await call.aclose()
    assert outlet.port


async def test_where_no_port_can_be_opened_contents_go_with_the_call(snapshot: Path) -> None:
    outlet = Outlet("no.such.host.invalid", idle_seconds=30)
    async with Background("test") as background:
        outlet.start(background)
        found = [response async for response in responses(snapshot, ASIDE, outlet)]
    assert found[0].port == 0
    assert sum(len(response.data) for response in found) == SIZE


async def test_an_offer_is_good_while_the_call_is_open(snapshot: Path, tmp_path: Path, outlet: Outlet) -> None:
    sent = responses(snapshot, ASIDE, outlet)
    offer = await anext(aiter(sent))
    await sent.aclose()
    with pytest.raises(Unavailable, match="hung up"):
        await Taking(snapshot, tmp_path / "taken").take(offer.port, offer.ticket)


async def test_a_file_that_has_become_shorter_is_not_given_whole(
    snapshot: Path, tmp_path: Path, outlet: Outlet
) -> None:
    offer = await anext(aiter(responses(snapshot, ASIDE, outlet)))
    (snapshot / "state" / "weights").write_bytes(b"short")
    with pytest.raises(Unavailable, match="before the end"):
        await Taking(snapshot, tmp_path / "taken").take(offer.port, offer.ticket)


async def test_a_transfer_that_is_cancelled_writes_no_more(snapshot: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        taking = Taking(snapshot, tmp_path / "taken")
        transfer = asyncio.create_task(taking.take(silent.getsockname()[1], bytes(32)))
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
        held.bind(("127.0.0.1", 0))  # Nobody listens there, nor is anybody else given the port.
        with pytest.raises(Unreachable, match="cannot be reached"):
            await taking.take(held.getsockname()[1], bytes(32))
