"""Receives and reads the files of snapshots and other blobs, and verifies them by their hash.

A packed snapshot is one file; a snapshot folder has a packed form, too, from which its hash is computed.
"""

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

from hopyard._runtime.hashing import StreamingHash
from hopyard._runtime.snapshot_file import SnapshotFileError, SnapshotFileInfo
from hopyard._runtime.snapshot_folder import FolderMember, FolderWriter, open_packed, place, remove
from hopyard.errors import DataLoss, InvalidInput, NotFound, TimedOut

CHUNK_BYTES: Final = 1024 * 1024
IDLE_SECONDS: Final = 30.0
"""Default time in seconds without data after which a transfer is abandoned."""
_AHEAD: Final = 8
"""Maximum number of chunks buffered between network and disk, so that they seldom wait for each other."""
T = TypeVar("T")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def check_hash(sha256: str) -> str:
    """Return the hash unchanged if it is valid. Unchecked text must not become a file name.

    Raises:
        InvalidInput: `sha256` is not 64 lower-case hexadecimal digits.
    """
    if _SHA256.fullmatch(sha256) is None:
        raise InvalidInput(f"sha256: found {sha256!r:.80}, allowed are 64 lower-case hexadecimal digits")
    return sha256


async def receive_file(
    chunks: AsyncIterator[bytes], target: Path, sha256: str, source: str, *, durable: bool = True
) -> int:
    """Write received chunks to the file `target`, and return its size in bytes. The file appears when it is complete and verified.

    Args:
        chunks: The bytes of the file.
        target: Path of the file. An existing file is replaced.
        sha256: The expected hash.
        source: Name of the sender, for error messages.
        durable: Whether to synchronize the file to disk. Otherwise a power failure may damage it; the hash reveals that.

    Raises:
        DataLoss: The bytes do not match the hash.
    """
    return await _receive(partial(_write, chunks), partial(_FileWriter, durable=durable), target, sha256, source)


async def receive_folder(
    found: Sequence[FolderMember],
    fill: Callable[[FileWriter], Awaitable[None]],
    target: Path,
    sha256: str,
    source: str,
) -> int:
    """Write a received snapshot to the folder `target`. The folder appears when it is complete and verified.

    Writes are not synchronized to disk.

    Args:
        found: The members of the folder: files and subfolders.
        fill: Receives the contents of the files, and passes them to the writer.
        target: Path of the folder.
        sha256: The expected hash of the packed form.
        source: Name of the sender, for error messages.

    Returns:
        The size of the packed form in bytes.

    Raises:
        DataLoss: The bytes do not match the hash, or are not a valid snapshot.
    """
    try:
        return await _receive(fill, partial(_folder_writer, found=found), target, sha256, source)
    except SnapshotFileError as error:
        raise DataLoss(f"{source} sent no snapshot: {error}") from error


async def receive_snapshot(
    arriving: AsyncIterator[bytes | list[FolderMember]], target: Path, sha256: str, source: str
) -> int:
    """Write a received snapshot to `target`, which appears when it is complete and verified.

    Writes are not synchronized to disk.

    Args:
        arriving: The chunks of the contents. If a list of members comes first, the snapshot is a folder; else it is a packed file.
        target: Path of the file or folder.
        sha256: The expected hash of the packed form.
        source: Name of the sender, for error messages.

    Returns:
        The size of the packed form in bytes.

    Raises:
        DataLoss: The bytes do not match the hash, or are not a valid snapshot.
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


async def receive_named_by_hash(chunks: AsyncIterator[bytes], folder: Path) -> ReceivedFile:
    """Write received chunks to a file in `folder` whose name is the SHA-256 hash of its content. Synchronize it to disk."""
    async with _arriving(partial(_write, chunks), partial(_FileWriter, durable=True), folder) as arrived:
        target = folder / arrived.sha256
        place(arrived.path, target)
    return ReceivedFile(target, arrived.sha256, arrived.size)


@dataclass(frozen=True, slots=True)
class ReceivedFile:
    """A received file or folder.

    Attributes:
        path: Path of the file or folder.
        sha256: Hash of the content; for a folder, of its packed form.
        size: Size in bytes; for a folder, of its packed form.
    """

    path: Path
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """How a file or snapshot came to this node.

    Attributes:
        size: Number of bytes that were downloaded; 0: it was on this node already.
        from_store: True: it was downloaded from the store. False: from another node, or not at all.
    """

    size: int = 0
    from_store: bool = False


class NoCopy(NotFound):
    """Raised if neither another agent nor the store has an undamaged copy of a snapshot.

    Args:
        message: The message, with the error of each place.
        missing_at: Addresses of the agents that answered and have no undamaged copy.
    """

    def __init__(self, message: str, missing_at: Sequence[str]) -> None:
        super().__init__(message)
        self.missing_at = tuple(missing_at)


class FileWriter(Protocol):
    """The interface for writing received data to a file or folder. Call `write` repeatedly, then `finish`, and always `close`."""

    def write(self, data: bytes | memoryview, /) -> None:
        """Write a chunk. The caller must not change the memory of `data` until its next call of a method."""

    def finish(self) -> SnapshotFileInfo:
        """Complete the file; return the hash and the size in bytes of all written data."""

    def close(self) -> None:
        """Close the file."""


class _FileWriter:
    def __init__(self, path: Path, *, durable: bool) -> None:
        self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)
        self._durable = durable
        self._hashed = StreamingHash()

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
) -> AsyncIterator[ReceivedFile]:
    """Return a context with a hidden file or folder that contains all received data.

    When the context ends, the file or folder is deleted, unless the caller has moved it. Move it in the event loop, because a move in a
    thread could race with the deletion.

    Args:
        fill: Receives the data, and passes it to the writer.
        make: Creates the writer for a path.
        folder: Folder for the hidden file.
    """
    path = folder / f".{uuid.uuid4().hex}.partial"
    try:
        writer = make(path)
        try:
            await fill(writer)
            info = await asyncio.to_thread(writer.finish)
        finally:
            writer.close()
        yield ReceivedFile(path, info.sha256, info.size)
    finally:
        if path.exists():
            await asyncio.shield(asyncio.to_thread(remove, path))


async def _write(chunks: AsyncIterator[bytes], writer: FileWriter) -> None:
    """Pass chunks to `writer` in a thread while further chunks are received. Raise the error of a write that failed."""
    behind = _Behind(writer)
    try:
        async for data in chunks:
            await behind.write(data)
    finally:
        await behind.end()  # A file must not be closed during a write.
    behind.check()


class _Behind:
    """Writes chunks in a thread, in order, through a bounded buffer.

    The thread wakes the event loop only if the buffer was full, because each wake-up costs time.

    Args:
        writer: Writes the chunks; it is called in the thread.
    """

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
        """Add a chunk to the buffer. Wait while the buffer is full.

        Raises:
            BaseException: The error with which an earlier chunk could not be written.
        """
        self.check()
        self._waiting.put(data)
        if self._waiting.qsize() > _AHEAD:
            self._room.clear()
            self._full = True
            if self._waiting.qsize() > _AHEAD // 2:  # The thread may have checked before the flag was set.
                await self._room.wait()

    async def end(self) -> None:
        """Wait until the chunks are written or one failed. If cancelled meanwhile, still wait, and raise CancelledError at the end."""
        self._waiting.put(None)
        await ended(self._ended)

    def check(self) -> None:
        """Raise the error with which a chunk could not be written, if there is one. After `end`, this covers all chunks."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (data := self._waiting.get()) is not None:
            if self._error is None:
                try:
                    self._writer.write(data)
                except BaseException as error:  # noqa: BLE001 (raised by `check`, in the task that adds chunks)
                    self._error = error
            if self._full and self._waiting.qsize() <= _AHEAD // 2:
                self._full = False
                self._loop.call_soon_threadsafe(self._room.set)
        self._loop.call_soon_threadsafe(self._ended.set_result, None)


async def ended(work: asyncio.Future[Any]) -> None:
    """Wait until `work` is done. If the caller is cancelled meanwhile, still wait, and raise CancelledError at the end.

    An exception of `work` is not raised here.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
    if not work.cancelled():
        work.exception()  # Mark the exception as retrieved.
    if cancelled is not None:
        raise cancelled


async def in_time(chunks: AsyncIterator[T], seconds: float, source: str) -> AsyncIterator[T]:
    """Yield the items of an iterator, waiting at most `seconds` for each.

    Raises:
        TimedOut: No item arrived in time; the message names `source`, the sender.
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
    """Return a context with a timeout that raises `TimedOut`.

    Args:
        limit: The timeout; the context enters it, so the caller must not. The caller may reschedule it in the context.
        source: Name of the sender or receiver, for the error message.

    Raises:
        TimedOut: The timeout expired.
    """
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise  # Another timeout expired.
        raise TimedOut(f"{source} was silent for too long") from error


async def packed_chunks(path: Path) -> AsyncIterator[bytes]:
    """Yield the packed form of the snapshot at `path` (a folder or a packed file), in chunks of at most 1 MiB.

    At least one chunk is yielded, which may be empty.

    Raises:
        FileNotFoundError: `path` does not exist.
    """
    # Opened in the event loop: with a thread, a cancellation could leak an open file.
    with open_packed(path) as file:
        async for data in read_chunks(file):
            yield data


async def read_chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    """Yield the bytes of an open file in chunks of at most 1 MiB, reading ahead in a thread. The caller closes the file.

    At least one chunk is yielded, which may be empty.
    """
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
    """Mark the exception of a read whose result is not needed as retrieved."""
    if not read.cancelled():
        read.exception()
