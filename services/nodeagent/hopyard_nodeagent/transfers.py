"""Moving packed files between this node, other nodes and the store, verified by their hash."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from hopyard.errors import DataLoss, InvalidInput, TimedOut

CHUNK_BYTES: Final = 1024 * 1024
IDLE_SECONDS: Final = 30.0
"""How long the other side of a transfer may be silent."""
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
    async with _arriving(chunks, target.parent, durable=durable) as arrived:
        if arrived.sha256 != sha256:
            raise DataLoss(f"{source} sent {arrived.size} bytes with the hash {arrived.sha256}; expected {sha256}")
        os.replace(arrived.path, target)
    return arrived.size


async def receive_named_by_hash(chunks: AsyncIterator[bytes], folder: Path) -> Arrived:
    """Write what arrives into `folder`, under its hash."""
    async with _arriving(chunks, folder) as arrived:
        target = folder / arrived.sha256
        os.replace(arrived.path, target)
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


@asynccontextmanager
async def _arriving(chunks: AsyncIterator[bytes], folder: Path, *, durable: bool = True) -> AsyncIterator[Arrived]:
    """A hidden file with everything that arrives; removed unless it is moved away."""
    handle, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".partial")
    digest = hashlib.sha256()
    try:
        with os.fdopen(handle, "wb") as file:

            def write(data: bytes) -> None:
                digest.update(data)
                file.write(data)

            def finish() -> int:
                file.flush()
                if durable:
                    os.fsync(file.fileno())
                return file.tell()

            # The next chunk arrives while the last one is hashed and written.
            last: asyncio.Task[None] | None = None
            try:
                async for data in chunks:
                    if last is not None:
                        await last
                    last = asyncio.create_task(asyncio.to_thread(write, data))
            finally:
                if last is not None:
                    await asyncio.shield(last)  # The file stays open as long as somebody writes.
            size = await asyncio.to_thread(finish)
        yield Arrived(Path(name), digest.hexdigest(), size)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)


async def in_time(chunks: AsyncIterator[bytes], seconds: float, source: str) -> AsyncIterator[bytes]:
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


async def file_chunks(path: Path) -> AsyncIterator[bytes]:
    """The bytes of a file, in chunks of at most 1 MiB; at least one chunk, which is empty for an empty file.

    Raises:
        FileNotFoundError: it is not there.
    """
    # Not opened in a thread: a reader that is cancelled meanwhile would leave an open file to nobody.
    with path.open("rb") as file:
        async for data in read_chunks(file):
            yield data


async def read_chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    """The bytes of an open file in such chunks; whoever opened it closes it."""
    yield await asyncio.to_thread(file.read, CHUNK_BYTES)
    while data := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield data
