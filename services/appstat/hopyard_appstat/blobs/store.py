"""The blob store: packed bytes under their SHA-256, verified on the way in and on the way out.

Every blob is first written to a local file beside its hash, and only a complete and verified one gets its name: by a
rename in a local store, by an upload in an object store. So a name that is there has all its bytes, whatever was
killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import uuid
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from hopyard.errors import DataLoss, Exhausted, InvalidInput
from hopyard_appstat.blobs.backends import CHUNK_BYTES, LocalBackend, StoredObject, object_backend

_log = logging.getLogger(__name__)

DEFAULT_MAX_BLOB_BYTES: Final = 64 * 1024**3

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def check_sha256(text: str) -> str:
    """The hash itself, if it is one: it becomes part of paths.

    Raises:
        InvalidInput: It is not 64 digits of lower-case hex.
    """
    if _SHA256.fullmatch(text) is None:
        raise InvalidInput(f"sha256: found {text!r:.80}, allowed are 64 digits of lower-case hex")
    return text


class Backend(Protocol):
    """Where verified blobs are kept. Hashes are checked before they come here."""

    async def size(self, sha256: str) -> int | None:
        """Size in bytes of a blob; None: it is not there."""

    async def adopt(self, sha256: str, file: Path) -> None:
        """Keep a complete, verified, flushed file's bytes under a hash; it may be moved away."""

    def read(self, sha256: str) -> AsyncGenerator[bytes]:
        """The bytes in chunks of at most `CHUNK_BYTES`; NotFound when they are not there."""

    async def delete(self, sha256: str) -> None:
        """Delete a blob; one that is not there counts as deleted."""

    async def survey(self) -> list[StoredObject]:
        """Everything that lies there under a name that the backend gives."""

    async def remove(self, found: StoredObject) -> None:
        """Delete what a survey found; what is gone counts as deleted."""


class BlobStore:
    """Blobs by hash.

    Args:
        backend: Where they are kept.
        incoming: Folder for what is being written, this store's alone.
        max_bytes: Size of the largest blob that is taken.
    """

    def __init__(self, backend: Backend, incoming: Path, *, max_bytes: int = DEFAULT_MAX_BLOB_BYTES) -> None:
        self._backend = backend
        self._incoming = incoming
        self._max_bytes = max_bytes
        self._arriving: set[Path] = set()

    async def open(self) -> None:
        """Make the folder."""
        await asyncio.to_thread(self._incoming.mkdir, parents=True, exist_ok=True)

    async def clear_partials(self, *, dry_run: bool = False) -> tuple[int, int]:
        """Delete what killed predecessors had not finished; answers how many files and bytes. `dry_run` deletes none."""

        def clear() -> tuple[int, int]:
            count = size = 0
            for left in list(self._incoming.iterdir()):
                # An upload's name is known before its file is there, and until after it is gone.
                if left in self._arriving:
                    continue
                with suppress(FileNotFoundError):
                    size += left.stat().st_size
                    count += 1
                    if not dry_run:
                        left.unlink()
            return count, size

        return await asyncio.to_thread(clear)

    async def survey(self) -> list[StoredObject]:
        """What lies in the backend."""
        return await self._backend.survey()

    async def remove(self, found: StoredObject) -> None:
        """Delete what a survey found."""
        await self._backend.remove(found)

    async def size(self, sha256: str) -> int | None:
        """Size in bytes of a blob; None: it is not there."""
        return await self._backend.size(check_sha256(sha256))

    async def put(self, sha256: str, chunks: AsyncIterable[bytes]) -> int:
        """Take a blob's bytes and keep them under their hash; answers their size.

        What is there already is not read or written again.

        Raises:
            InvalidInput: The hash is none.
            DataLoss: The bytes have another hash; nothing is kept.
            Exhausted: They are more than `max_bytes`, or the disk is full; nothing is kept.
        """
        present = await self.size(sha256)
        if present is not None:
            return present
        path = self._incoming / f"{sha256}.{uuid.uuid4().hex}"
        self._arriving.add(path)
        try:
            size, found = await self._receive(path, chunks)
            if found != sha256:
                raise DataLoss(f"blob {sha256}: the {size} bytes that came have the hash {found}; send it again")
            await self._backend.adopt(sha256, path)
        except OSError as error:
            raise Exhausted(f"blob {sha256} cannot be stored: {error.strerror or error}; make room") from error
        finally:
            path.unlink(missing_ok=True)
            self._arriving.discard(path)
        return size

    async def _receive(self, path: Path, chunks: AsyncIterable[bytes]) -> tuple[int, str]:
        """Write chunks to a new file and flush it to the disk; answers their size and hash.

        Small blobs, such as most snapshots, are gathered first: each turn of a thread costs more than what it writes.
        """
        gathered = bytearray()
        digest = hashlib.sha256()
        size = 0
        file: BinaryIO | None = None

        def write() -> None:
            nonlocal file
            # A buffered file, not a bare descriptor: when the call is cancelled a thread may still write, and closing
            # waits for it.
            file = file or path.open("xb")
            digest.update(gathered)
            file.write(gathered)
            gathered.clear()

        def finish() -> None:
            write()
            assert file is not None
            file.flush()
            os.fsync(file.fileno())

        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > self._max_bytes:
                    raise Exhausted(f"the blob has more than the {self._max_bytes} bytes that --max-blob-bytes allows")
                gathered += chunk
                if len(gathered) >= CHUNK_BYTES:
                    await _to_the_end(write)
            await _to_the_end(finish)
        finally:
            if file is not None:
                file.close()
        return size, digest.hexdigest()

    async def get(self, sha256: str) -> AsyncGenerator[bytes, None]:
        """The bytes in chunks of at most `CHUNK_BYTES`.

        Raises:
            InvalidInput: The hash is none.
            NotFound: The blob is not there.
            DataLoss: After the last chunk: the bytes are not what the hash promises. The blob is deleted then, so that
                whoever has a good copy can put it again.
        """
        digest = hashlib.sha256()
        async with aclosing(self._backend.read(check_sha256(sha256))) as chunks:
            async for chunk in chunks:
                digest.update(chunk)
                yield chunk
        if digest.hexdigest() != sha256:
            _log.error("blob %s is damaged: its bytes have the hash %s; it is deleted", sha256, digest.hexdigest())
            await self._backend.delete(sha256)
            raise DataLoss(f"blob {sha256} was damaged in the store and is deleted; get or put another copy")

    async def delete(self, sha256: str) -> None:
        """Delete a blob; one that is not there counts as deleted."""
        await self._backend.delete(check_sha256(sha256))


async def _to_the_end(work: Callable[[], None]) -> None:
    """Do work in a thread; a caller that leaves waits for it, so that it leaves nothing behind."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise


def open_backend(url: str | None, data: Path) -> Backend:
    """The backend of a URL: `store/` in the data folder without one, a folder for file://, else an object store.

    Raises:
        InvalidInput: The URL is none that is supported.
    """
    if url is None:
        return LocalBackend(data / "store")
    if url.startswith("file://"):
        return LocalBackend(Path(url.removeprefix("file://")))
    return object_backend(url)
