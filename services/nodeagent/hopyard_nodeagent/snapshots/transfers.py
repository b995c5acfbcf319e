"""Moving packed files between this node, other nodes and the store, verified by their hash."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import uuid
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, BinaryIO, Final, Protocol, TypeVar

from hopyard._runtime.hashing import Hashed
from hopyard._runtime.snapshot_file import SnapshotFileError, SnapshotFileInfo
from hopyard._runtime.snapshot_folder import FolderMember, FolderWriter, open_packed, place, remove
from hopyard.errors import DataLoss, InvalidInput, TimedOut

CHUNK_BYTES: Final = 1024 * 1024
IDLE_SECONDS: Final = 30.0
"""How long the other side of a transfer may be silent."""
_AHEAD: Final = 8
"""Chunks that may have arrived and not been written, or been read and not sent: so the two sides seldom wait for one another."""
T = TypeVar("T")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def check_hash(sha256: str) -> str:
    """Return a hash that is one; what is not cannot name a file.

    Raises:
        InvalidInput: it is not 64 lower-case hexadecimal digits.
    """
    if _SHA256.fullmatch(sha256) is None:
        raise InvalidInput(f"sha256: found {sha256!r:.80}, allowed are 64 lower-case hexadecimal digits")
    return sha256


async def receive_file(
    chunks: AsyncIterator[bytes], target: Path, sha256: str, source: str, *, durable: bool = True
) -> int:
    """Write what arrives to `target`, which appears whole or not at all; returns its size in bytes.

    With `durable` False nothing waits for the disk: what a power failure damages the hash tells.

    Raises:
        DataLoss: the bytes do not have the hash; `source` is named.
    """
    return await _receive(partial(_write, chunks), partial(_FileWriter, durable=durable), target, sha256, source)


async def receive_folder(
    found: Sequence[FolderMember],
    fill: Callable[[FileWriter], Awaitable[None]],
    target: Path,
    sha256: str,
    source: str,
) -> int:
    """Write a snapshot with these members to the folder `target`: `fill` writes their contents. Nothing waits for the disk.

    `target` appears whole or not at all; returns the size of the packed snapshot in bytes.

    Raises:
        DataLoss: the bytes do not have the hash, or are nothing that a snapshot may hold; `source` is named.
    """
    try:
        return await _receive(fill, partial(_folder_writer, found=found), target, sha256, source)
    except SnapshotFileError as error:
        raise DataLoss(f"{source} sent no snapshot: {error}") from error


async def receive_snapshot(
    arriving: AsyncIterator[bytes | list[FolderMember]], target: Path, sha256: str, source: str
) -> int:
    """Write a snapshot to `target`: as a folder, if its members come first, else as a file. Nothing waits for the disk.

    `target` appears whole or not at all; returns the size of the packed snapshot in bytes.

    Raises:
        DataLoss: the bytes do not have the hash, or are nothing that a snapshot may hold; `source` is named.
    """
    first = await anext(arriving, b"")

    async def chunks() -> AsyncIterator[bytes]:
        if not isinstance(first, list):
            yield first
        async for data in arriving:
            if isinstance(data, list):
                raise DataLoss(f"{source} told of the members of {sha256} twice")
            yield data

    if isinstance(first, list):
        return await receive_folder(first, partial(_write, chunks()), target, sha256, source)
    return await receive_file(chunks(), target, sha256, source, durable=False)


async def receive_named_by_hash(chunks: AsyncIterator[bytes], folder: Path) -> Arrived:
    """Write what arrives into `folder`, under its hash."""
    async with _arriving(partial(_write, chunks), partial(_FileWriter, durable=True), folder) as arrived:
        target = folder / arrived.sha256
        place(arrived.path, target)
    return Arrived(target, arrived.sha256, arrived.size)


@dataclass(frozen=True, slots=True)
class Arrived:
    """A file that came over the network, with its hash and size in bytes."""

    path: Path
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was got to have a file here: bytes from another agent or from the store; none if it was here."""

    size: int = 0
    from_store: bool = False


class FileWriter(Protocol):
    """Writes what arrives, and finds its hash."""

    def write(self, data: bytes | memoryview, /) -> None:
        """Take what follows. It may be read until the next call: its memory is to hold nothing else before."""

    def finish(self) -> SnapshotFileInfo:
        """What it is named by."""

    def close(self) -> None:
        """Write no more."""


class _FileWriter:
    def __init__(self, path: Path, *, durable: bool) -> None:
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)
        self._durable = durable
        self._hashed = Hashed()

    def write(self, data: bytes | memoryview) -> None:
        self._hashed.update(data)
        view = memoryview(data)
        while view:
            view = view[self._file.write(view) :]

    def finish(self) -> SnapshotFileInfo:
        if self._durable:
            os.fsync(self._file.fileno())
        return SnapshotFileInfo(self._hashed.hexdigest(), self._hashed.size)

    def close(self) -> None:
        self._hashed.close()
        self._file.close()


def _folder_writer(path: Path, *, found: Sequence[FolderMember]) -> FileWriter:
    path.mkdir(mode=0o700)
    return FolderWriter(path, found)


async def _receive(
    fill: Callable[[FileWriter], Awaitable[None]],
    make: Callable[[Path], FileWriter],
    target: Path,
    sha256: str,
    source: str,
) -> int:
    async with _arriving(fill, make, target.parent) as arrived:
        if arrived.sha256 != sha256:
            raise DataLoss(f"{source} sent {arrived.size} bytes with the hash {arrived.sha256}; expected {sha256}")
        place(arrived.path, target)
    return arrived.size


@asynccontextmanager
async def _arriving(
    fill: Callable[[FileWriter], Awaitable[None]], make: Callable[[Path], FileWriter], folder: Path
) -> AsyncIterator[Arrived]:
    """A hidden file or folder with everything that arrives; removed unless it is moved away.

    It is moved on the event loop, at once: a thread might still do that while what is left is removed on another.
    """
    path = folder / f".{uuid.uuid4().hex}.partial"
    try:
        writer = make(path)
        try:
            await fill(writer)
            info = await asyncio.to_thread(writer.finish)
        finally:
            writer.close()
        yield Arrived(path, info.sha256, info.size)
    finally:
        if path.exists():
            await asyncio.shield(asyncio.to_thread(remove, path))


async def _write(chunks: AsyncIterator[bytes], writer: FileWriter) -> None:
    """Hash and write while what follows arrives."""
    behind = _Behind(writer)
    try:
        async for data in chunks:
            await behind.write(data)
    finally:
        await behind.end()  # Nobody closes a file while somebody writes.
    behind.check()


class _Behind:
    """Writes on a thread of its own, in order, with some chunks between; that wakes the event loop only when these are too many."""

    def __init__(self, writer: FileWriter) -> None:
        self._writer = writer
        self._loop = asyncio.get_running_loop()
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._room = asyncio.Event()
        self._ended = self._loop.create_future()
        self._error: BaseException | None = None
        self._full = False
        threading.Thread(target=self._work, name="arriving", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Take a chunk; waits while too many have not been written.

        Raises:
            What made an earlier one fail.
        """
        self.check()
        self._waiting.put(data)
        if self._waiting.qsize() > _AHEAD:
            self._room.clear()
            self._full = True
            if self._waiting.qsize() > _AHEAD // 2:  # The thread may have looked before it was told.
                await self._room.wait()

    async def end(self) -> None:
        """Wait until everything is written, also when the caller is cancelled."""
        self._waiting.put(None)
        await ended(self._ended)

    def check(self) -> None:
        """Raise what made a chunk fail."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (data := self._waiting.get()) is not None:
            if self._error is None:
                try:
                    self._writer.write(data)
                except BaseException as error:  # noqa: BLE001 (it rises where the chunks come from)
                    self._error = error
            if self._full and self._waiting.qsize() <= _AHEAD // 2:
                self._full = False
                self._loop.call_soon_threadsafe(self._room.set)
        self._loop.call_soon_threadsafe(self._ended.set_result, None)


async def ended(work: asyncio.Future[Any]) -> None:
    """Wait until `work` is done, however often the caller is cancelled meanwhile; then raise the cancellation.

    What `work` raises does not rise here.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if not work.cancelled():
        work.exception()  # It counts as retrieved.
    if cancelled is not None:
        raise cancelled


async def in_time(chunks: AsyncIterator[T], seconds: float, source: str) -> AsyncIterator[T]:
    """What arrives, each chunk at most so many seconds after it is waited for.

    Raises:
        TimedOut: `source` was silent for longer.
    """
    while True:
        try:
            async with patience(asyncio.timeout(seconds), source):
                data = await anext(chunks)
        except StopAsyncIteration:
            return
        yield data


@asynccontextmanager
async def patience(limit: asyncio.Timeout, source: str) -> AsyncIterator[None]:
    """Wait inside no longer than a limit that was not entered yet.

    Raises:
        TimedOut: it expired; `source` is named.
    """
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise  # somebody else's limit
        raise TimedOut(f"{source} was silent for too long") from error


async def packed_chunks(path: Path) -> AsyncIterator[bytes]:
    """The bytes of a packed snapshot, or of a folder's, in chunks of at most 1 MiB; at least one, which is empty for an empty file.

    Raises:
        FileNotFoundError: it is not there.
    """
    # Not opened in a thread: a reader that is cancelled meanwhile would leave an open file to nobody.
    with open_packed(path) as file:
        async for data in read_chunks(file):
            yield data


async def read_chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    """The bytes of an open file in such chunks, some of which are read before they are asked for; whoever opened it closes it."""
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, "reading")
    reads: deque[asyncio.Future[bytes]] = deque()

    def read() -> None:
        reads.append(loop.run_in_executor(thread, file.read, CHUNK_BYTES))
        reads[-1].add_done_callback(_heard)

    try:
        for _ in range(_AHEAD):
            read()
        yield await reads.popleft()
        while data := await reads.popleft():
            read()
            yield data
    finally:
        for waiting in reads:
            waiting.cancel()
        thread.shutdown(wait=False)


def _heard(read: asyncio.Future[bytes]) -> None:
    """Nobody waits for what was read ahead when the other side leaves; nor for why it could not be."""
    if not read.cancelled():
        read.exception()
