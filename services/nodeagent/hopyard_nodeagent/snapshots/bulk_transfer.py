"""Transfers the contents of snapshots between agents over a plain socket, because gRPC copies every message.

The receiver first makes a gRPC call, whose response names a Unix socket or a TCP port, and a *ticket*: random bytes that authorize one
connection to it. The received content is verified by the snapshot's hash.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hopyard._runtime.hashing import in_turns
from hopyard._runtime.snapshot_folder import FolderMember
from hopyard.errors import Unavailable
from hopyard_nodeagent.snapshots.transfers import FileWriter, ended

_log = logging.getLogger(__name__)

_TICKET_BYTES: Final = 32
_TICKET_SECONDS: Final = 30.0
"""Time limit in seconds for a new connection to send its ticket."""
_CONNECT_SECONDS: Final = 2.0
_AT_ONCE: Final = 8
_CALLERS: Final = 4 * _AT_ONCE
"""Maximum number of open connections, including those that have not sent a ticket."""
_AGAIN_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Offer:
    """The concatenated contents of a snapshot's files, which are sent to the receiver that connects and sends the ticket.

    Attributes:
        ticket: The bytes that authorize a connection; the receiver sends them first.
        files: Path and size in bytes of each file.
        given: Completed by the sender when the contents were sent; fails with an OSError if they could not be sent; cancelled if the
            context of `BulkSender.offer` ends earlier.
    """

    ticket: bytes
    files: Sequence[tuple[Path, int]]
    given: asyncio.Future[None]


Place = Path | tuple[str, int]
"""Where a sender listens: the path of a Unix socket, or host and port."""


class BulkSender:
    """The sending side: listens on a socket, and sends offered contents over at most `_AT_ONCE` connections at a time.

    If there are that many offers and connections, it is not `free`, so that further contents are sent over gRPC. A new instance does
    not listen; call `start`.

    Args:
        listen: Address to listen on, at a free TCP port; or the path of a Unix socket to create in an existing folder, in which no
            other process creates sockets of this name.
        idle_seconds: Time in seconds without progress after which a receiver is disconnected.
    """

    def __init__(self, listen: str | Path, *, idle_seconds: float) -> None:
        self._listen_at = listen
        self._idle_seconds = idle_seconds
        self._offers: dict[bytes, Offer] = {}
        self._listener: socket.socket | None = None
        self._threads = ThreadPoolExecutor(_AT_ONCE, "giving")
        self._open: set[socket.socket] = set()
        self._again: asyncio.TimerHandle | None = None

    @property
    def free(self) -> bool:
        """Whether it listens and has capacity for another transfer."""
        return self._listener is not None and len(self._offers) + len(self._open) < _AT_ONCE

    @property
    def port(self) -> int:
        """The TCP port on which it listens; 0: it listens on a Unix socket, or not at all."""
        listener = self._listener
        return 0 if listener is None or isinstance(self._listen_at, Path) else int(listener.getsockname()[1])

    @property
    def path(self) -> str:
        """The path of the Unix socket on which it listens; empty: it listens on a TCP port, or not at all."""
        return str(self._listen_at) if self._listener is not None and isinstance(self._listen_at, Path) else ""

    def start(self) -> None:
        """Start to listen, in the running event loop. If that fails, contents are sent over gRPC instead."""
        try:
            self._listener = _listener(self._listen_at)
        except OSError as error:
            _log.warning("contents of snapshots go over gRPC, since %s cannot be opened: %s", self._listen_at, error)
            return
        self._listener.setblocking(False)
        self._listen(asyncio.get_running_loop(), self._listener)

    def stop(self) -> None:
        """Stop listening and close all connections. Safe to call twice, and before `start`.

        A connection served by a thread is closed by that thread; all others are closed here.
        """
        listener, self._listener = self._listener, None
        if listener is not None:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
            if isinstance(self._listen_at, Path):
                self._listen_at.unlink(missing_ok=True)
        if self._again is not None:
            self._again.cancel()
        for connection in tuple(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def offer(self, folder: Path, found: Sequence[FolderMember]) -> AsyncIterator[Offer]:
        """Return a context that yields an offer of the contents of a folder's files.

        Until the context ends, the contents are sent to a receiver that connects and sends the offer's ticket. Do not call this
        unless it is `free`, because then no connection can be made.

        Args:
            folder: The folder.
            found: The members of the folder, in the order in which their contents are sent.
        """
        files = [(folder / member.name, member.size) for member in found if member.size]
        offer = Offer(secrets.token_bytes(_TICKET_BYTES), files, asyncio.get_running_loop().create_future())
        self._offers[offer.ticket] = offer
        try:
            yield offer
        finally:
            self._offers.pop(offer.ticket, None)
            offer.given.cancel()

    def _listen(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        loop.add_reader(listener, self._accept, loop, listener)

    def _accept(self, loop: asyncio.AbstractEventLoop, listener: socket.socket) -> None:
        """Accept one connection on `listener`, and pass it to a thread.

        This is a callback of the event loop and not a task, because a task that is cancelled just after its connection was accepted
        would leak the connection.
        """
        try:
            connection, _ = listener.accept()
        except BlockingIOError:  # The caller has disconnected.
            return
        except OSError as error:  # For example, too many open files.
            _log.warning("no contents of snapshots can be fetched at present: %s", error)
            loop.remove_reader(listener)
            self._again = loop.call_later(_AGAIN_SECONDS, self._listen, loop, listener)
            return
        if len(self._open) >= _CALLERS:
            connection.close()
            return
        self._open.add(connection)
        giving = self._threads.submit(self._give, loop, connection)
        giving.add_done_callback(partial(self._over, connection))

    def _over(self, connection: socket.socket, giving: Future[None]) -> None:
        """Close a connection, and log the error of `giving`, if it failed.

        This is the done callback of `giving`, which sends the contents over the connection in a thread.
        """
        connection.close()
        self._open.discard(connection)
        if not giving.cancelled() and (error := giving.exception()) is not None:
            _log.error("contents of a snapshot could not be given", exc_info=error)

    def _give(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        """Serve one connection: read its ticket, and send the offered contents. Runs in a thread.

        A connection without a valid ticket gets nothing. The result is recorded in the offer, in the event loop `loop`.
        """
        with suppress(OSError):
            offer = self._offers.pop(_exactly(connection, _TICKET_BYTES, _TICKET_SECONDS), None)
            if offer is None:
                return
            connection.settimeout(self._idle_seconds)
            error: OSError | None = None
            try:
                for path, size in offer.files:
                    with path.open("rb") as file:
                        connection.sendfile(file, count=size)
            except OSError as failed:
                error = failed
            with suppress(RuntimeError):  # The agent has stopped.
                loop.call_soon_threadsafe(_settle, offer.given, error)


class Unreachable(Exception):
    """The socket or port of another agent cannot be reached, although its gRPC service can. Use gRPC instead."""


def _listener(place: str | Path) -> socket.socket:
    """Return a socket that listens at a free port of a host, or at a path; a socket that an earlier agent left there is replaced.

    Raises:
        OSError: It cannot listen there.
    """
    if isinstance(place, Path):
        place.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(place))
            listener.listen()
        except OSError:
            listener.close()
            raise
        return listener
    host = place.strip("[]")
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, 0), family=family)


def _connection(place: Place) -> socket.socket:
    """Connect to a sender.

    Raises:
        OSError: Nothing answers there within `_CONNECT_SECONDS`.
    """
    if not isinstance(place, Path):
        return socket.create_connection(place, _CONNECT_SECONDS)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(str(place))
    except OSError:
        connection.close()
        raise
    return connection


async def take(
    threads: Executor, place: Place, ticket: bytes, size: int, idle_seconds: float, writer: FileWriter
) -> None:
    """Receive offered contents over a plain socket, in a thread.

    When this returns or raises, nothing is written any more. The thread closes the connection, even if the event loop has ended.

    Args:
        threads: Executor for the thread.
        place: The socket, or host and port, of the sender.
        ticket: The ticket of the offer.
        size: Number of bytes to receive.
        idle_seconds: Time in seconds without data after which the sender counts as unavailable.
        writer: Writes the received bytes.

    Raises:
        Unreachable: Nothing answers there.
        Unavailable: The sender disconnected, or sent nothing for `idle_seconds`.
        SnapshotFileError, OSError: The contents cannot be written.
    """
    connecting = threads.submit(_connection, place)
    try:
        connection = await asyncio.wrap_future(connecting)
    except asyncio.CancelledError:
        connecting.add_done_callback(_hang_up)
        raise
    except OSError as error:
        where = str(place) if isinstance(place, Path) else f"port {place[1]} of {place[0]}"
        raise Unreachable(f"{where} cannot be reached: {error}") from error
    try:
        taking = threads.submit(_take, connection, ticket, writer, size, idle_seconds)
    except BaseException:  # The agent has stopped.
        connection.close()
        raise
    taking.add_done_callback(lambda _: connection.close())
    taken = asyncio.wrap_future(taking)
    try:
        await asyncio.shield(taken)
    finally:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # This ends the thread, if it still runs.
        await ended(taken)


def _take(connection: socket.socket, ticket: bytes, writer: FileWriter, size: int, idle_seconds: float) -> None:
    try:
        connection.settimeout(idle_seconds)
        connection.sendall(ticket)
    except OSError as error:
        raise Unavailable(f"the other side hung up: {error}") from error
    for buffer in in_turns():
        block = buffer[:size]
        if not block:
            return
        _fill(block, connection, size)
        writer.write(block)
        size -= len(block)


def _fill(block: memoryview, connection: socket.socket, left: int) -> None:
    """Receive bytes until `block` is full. Full blocks need fewer calls of the writer, each of which may switch threads.

    Args:
        block: The memory to fill.
        connection: The connection.
        left: Number of bytes of the transfer that remain, including this block; for the error message.

    Raises:
        Unavailable: The sender disconnected, or sent nothing for too long.
    """
    filled = 0
    while filled < len(block):
        try:
            count = connection.recv_into(block[filled:])
        except OSError as error:
            raise Unavailable(f"the other side fell silent: {error}") from error
        if not count:
            raise Unavailable(f"the other side hung up {left - filled} bytes before the end")
        filled += count


def _hang_up(connecting: Future[socket.socket]) -> None:
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().close()


def _exactly(connection: socket.socket, size: int, seconds: float) -> bytes:
    """Return the first `size` bytes that a connection sends; fewer if it disconnects or takes longer than `seconds`."""
    until, found = time.monotonic() + seconds, b""
    while len(found) < size and (left := until - time.monotonic()) > 0:
        connection.settimeout(left)
        if not (data := connection.recv(size - len(found))):
            break
        found += data
    return found


def _settle(given: asyncio.Future[None], error: OSError | None) -> None:
    if given.done():
        return
    if error is None:
        given.set_result(None)
    else:
        given.set_exception(error)
