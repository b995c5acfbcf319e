"""Transfers snapshots between agents, which are each other's *peers*: fetches them, and sends them on request.

A folder is sent unpacked: first the list of its members, then their contents, over a plain socket if possible (`bulk_transfer`), else
over gRPC.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from hopyard._net.rpc import Channel, channel
from hopyard._net.rpc.address import host_of, is_socket
from hopyard._net.rpc.channel import Metadata
from hopyard._runtime.snapshot_file import SnapshotFileError
from hopyard._runtime.snapshot_folder import FolderMember, members, open_contents, open_packed
from hopyard.errors import DataLoss, HopyardError, NotFound, Unavailable
from hopyard.v1 import node_agent_pb2 as wire
from hopyard.v1 import node_agent_pb2_grpc
from hopyard_nodeagent.cluster_access import TicketSource
from hopyard_nodeagent.snapshots import bulk_transfer
from hopyard_nodeagent.snapshots.transfers import in_time, read_chunks, receive_folder, receive_snapshot

_log = logging.getLogger(__name__)

_MOST_MEMBERS: Final = 10_000
"""A snapshot with more files and folders is sent packed, because their names must fit into one message."""
_MOST_LINKS: Final = 16
_AT_ONCE: Final = 16
_BEYOND_SECONDS: Final = 600.0
"""Time in seconds after which an unreachable socket of a peer is tried again."""


class _Link:
    """A connection to another agent, and the number of fetches that use it.

    Args:
        peer: Address of the other agent, unix:/PATH or HOST:PORT.
    """

    def __init__(self, peer: str) -> None:
        self.channel: Channel = channel(peer, token=None)
        self.users = 0


class Peers:
    """The connections to other agents. They stay open for further snapshots; above `_MOST_LINKS` connections, idle ones are closed.

    Args:
        tickets: Requests the ticket of each transfer.
        idle_seconds: Time in seconds without data after which a transfer is abandoned.
        clock: Returns monotonic seconds. They measure for how long gRPC is used for a peer whose socket could not be reached.
    """

    def __init__(
        self, tickets: TicketSource, *, idle_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tickets = tickets
        self._idle_seconds = idle_seconds
        self._links: dict[str, _Link] = {}
        self._clock = clock
        self._beyond: dict[str, float] = {}
        """The peers whose socket cannot be reached, each with the time until which gRPC is used instead, by `clock`."""
        self._threads = ThreadPoolExecutor(_AT_ONCE, "taking")

    async def fetch(self, peer: str, sha256: str, target: Path) -> int:
        """Fetch a snapshot from a peer to the path `target`; return the size of the packed snapshot in bytes.

        `target` appears when the snapshot is complete and verified. It is a folder if the peer has a folder, else a file. Writes are
        not synchronized to disk, because the hash reveals damage by a power failure.

        Args:
            peer: Address of the other agent, unix:/PATH or HOST:PORT.
            sha256: Hash of the snapshot.
            target: The path to create.

        Raises:
            HopyardError: The peer cannot be reached, does not have the snapshot, sends nothing for too long, or sends wrong bytes.
        """
        try:
            return await self._fetch(peer, sha256, target, beside=self._reachable(peer))
        except bulk_transfer.Unreachable as error:
            _log.warning(
                "snapshots of the node agent at %s come over gRPC for the next %d minutes: %s",
                peer,
                _BEYOND_SECONDS // 60,
                error,
            )
            self._beyond[peer] = self._clock() + _BEYOND_SECONDS
            return await self._fetch(peer, sha256, target, beside=False)

    async def _fetch(self, peer: str, sha256: str, target: Path, *, beside: bool) -> int:
        request = wire.FetchSnapshotRequest(sha256=sha256, unpacked=True, aside=beside)
        source = f"the node agent at {peer}"
        headers = await self._tickets.ticket(peer, "FetchSnapshot", sha256)
        async with self._link(peer) as connection, aclosing(_asked(connection, request, headers)) as responses:
            arriving = in_time(responses, self._idle_seconds, source)
            first = await anext(arriving, wire.FetchSnapshotResponse())
            # A path is accepted only from an agent on this computer, which was reached by a socket too.
            if first.port or (first.socket and is_socket(peer)):
                found = [_member(one) for one in first.members]
                place = Path(first.socket) if not first.port else (host_of(peer), first.port)
                size = sum(member.size or 0 for member in found)
                fill = partial(bulk_transfer.take, self._threads, place, first.ticket, size, self._idle_seconds)
                return await receive_folder(found, fill, target, sha256, source)
            return await receive_snapshot(_pieces(first, arriving), target, sha256, source)

    def _reachable(self, peer: str) -> bool:
        """Return whether to use the plain socket of a peer: it has not been found unreachable within the last `_BEYOND_SECONDS`."""
        now = self._clock()
        self._beyond = {other: until for other, until in self._beyond.items() if until > now}
        return peer not in self._beyond

    async def close(self) -> None:
        """Close all connections."""
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.channel.close() for link in links))
        self._threads.shutdown(wait=False)

    @asynccontextmanager
    async def _link(self, peer: str) -> AsyncIterator[Channel]:
        link = self._links.pop(peer, None) or _Link(peer)
        self._links[peer] = link  # The order of the dictionary is the order of use.
        link.users += 1
        try:
            await self._let_go()
            yield link.channel
        except HopyardError:
            # A retry follows at once; reusing a broken connection would wait for its reconnection.
            if self._links.get(peer) is link:
                del self._links[peer]
            raise
        finally:
            link.users -= 1
            if not link.users and self._links.get(peer) is not link:
                await link.channel.close()

    async def _let_go(self) -> None:
        idle = [peer for peer, link in self._links.items() if not link.users]
        for peer in idle[: max(len(self._links) - _MOST_LINKS, 0)]:
            await self._links.pop(peer).channel.close()


async def _asked(
    connection: Channel, request: wire.FetchSnapshotRequest, headers: Metadata
) -> AsyncGenerator[wire.FetchSnapshotResponse]:
    stub: node_agent_pb2_grpc.NodeAgentServiceAsyncStub = node_agent_pb2_grpc.NodeAgentServiceStub(connection)
    call = stub.FetchSnapshot(request, metadata=headers)
    try:
        async for response in call:
            yield response
    finally:
        call.cancel()


async def _pieces(
    first: wire.FetchSnapshotResponse, others: AsyncIterator[wire.FetchSnapshotResponse]
) -> AsyncIterator[bytes | list[FolderMember]]:
    if first.members:
        yield [_member(one) for one in first.members]
    yield first.data
    async for response in others:
        if response.members:
            yield [_member(one) for one in response.members]
        yield response.data


async def responses(
    path: Path, request: wire.FetchSnapshotRequest, outlet: bulk_transfer.BulkSender | None
) -> AsyncGenerator[wire.FetchSnapshotResponse]:
    """Yield the responses to FetchSnapshot, which send the snapshot at `path`, or offer it over a plain socket.

    A folder that the receiver accepts unpacked (`unpacked`) is offered over a plain socket if the receiver accepts this, too (`aside`),
    and `outlet` has capacity. All other snapshots are sent in the responses.

    Args:
        path: The snapshot, a folder or a packed file.
        request: The request.
        outlet: The sending side of plain sockets; None: send over gRPC.

    Raises:
        NotFound: The snapshot does not exist.
        DataLoss: The snapshot is damaged.
        Unavailable: The snapshot could not be read, or the receiver disconnected.
    """
    found = await asyncio.to_thread(_contents, path)
    unpacked = request.unpacked and 0 < len(found) <= _MOST_MEMBERS
    first = wire.FetchSnapshotResponse(members=map(_message, found if unpacked else ()))
    if unpacked and request.aside and outlet is not None and outlet.free:
        async with outlet.offer(path, found) as offer:
            first.port, first.socket, first.ticket = outlet.port, outlet.path, offer.ticket
            yield first
            try:
                await offer.given
            except OSError as error:
                raise Unavailable(f"snapshot {path.name} could not be given: {error}") from error
        return
    if unpacked:
        yield first
    try:
        with open_contents(path, found) if unpacked else open_packed(path) as opened:
            async for data in read_chunks(opened):
                yield wire.FetchSnapshotResponse(data=data)
    except SnapshotFileError as error:
        raise DataLoss(f"snapshot {path.name} is damaged on this node: {error}") from error


def _contents(path: Path) -> list[FolderMember]:
    """Return the members (files and subfolders) of a snapshot that is a folder; empty for a packed file.

    Raises:
        NotFound: The snapshot does not exist.
        DataLoss: It contains a link or a device.
    """
    if path.is_dir():
        try:
            return members(path)
        except SnapshotFileError as error:
            raise DataLoss(f"snapshot {path.name} is damaged on this node: {error}") from error
    if not path.exists():
        raise NotFound(f"snapshot {path.name} is not on this node")
    return []


def _message(member: FolderMember) -> wire.SnapshotMember:
    return wire.SnapshotMember(name=os.fsencode(member.name), size=member.size or 0, folder=member.size is None)


def _member(message: wire.SnapshotMember) -> FolderMember:
    return FolderMember(os.fsdecode(message.name), None if message.folder else message.size)
