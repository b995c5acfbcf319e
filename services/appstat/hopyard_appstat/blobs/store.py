"""The blob store: bytes stored under their SHA-256 (the blob's hash), verified when written and when read.

A blob is first written to a temporary file while its hash is computed. Only a complete and verified blob gets its final name: by rename
in a local store, by upload in an object store. A blob under its final name is therefore complete, even after a crash.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from contextlib import aclosing, suppress
from pathlib import Path
from typing import BinaryIO, Final, Protocol
from weakref import WeakValueDictionary

from hopyard.errors import DataLoss, Exhausted, InvalidInput, NotFound
from hopyard_appstat.blobs.backends import (
    CHUNK_BYTES,
    BlobUnreadable,
    LocalBackend,
    Stamp,
    StoredObject,
    object_backend,
)

_log = logging.getLogger(__name__)

DEFAULT_MAX_BLOB_BYTES: Final = 64 * 1024**3

_MOST_VERIFIED: Final = 100_000
"""Maximum number of blobs whose stamps are kept, with about 400 bytes for each."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def check_sha256(text: str) -> str:
    """Return `text` unchanged if it is a valid hash. Unchecked text must not become part of a path.

    Raises:
        InvalidInput: The text is not 64 digits of lower-case hex.
    """
    if _SHA256.fullmatch(text) is None:
        raise InvalidInput(f"sha256: found {text!r:.80}, allowed are 64 digits of lower-case hex")
    return text


class Backend(Protocol):
    """The interface of backends, which store verified blobs. Callers have validated all hashes (`check_sha256`)."""

    @property
    def checks_itself(self) -> bool:
        """Whether the storage verifies what it stores, so that reading a blob only to verify it is not worth its cost."""

    async def stamp(self, sha256: str) -> Stamp | None:
        """Return the stamp of a blob; None: the blob is not stored."""

    async def adopt(self, sha256: str, file: Path) -> None:
        """Store a complete, verified and flushed file as the blob of a hash. If the blob is stored already, the file replaces it.

        The backend may move the file or leave it where it was.

        Raises:
            OSError: The blob cannot be written to a folder, for example because the disk is full.
            Exhausted: A quota of the object store is exceeded.
            Unavailable: The object store fails.
        """

    def read(self, sha256: str, opened: Callable[[Stamp], None] | None = None) -> AsyncGenerator[bytes]:
        """Yield the bytes of a blob in chunks of at most `CHUNK_BYTES`.

        Args:
            sha256: The hash.
            opened: Called with the stamp of these bytes before the first chunk.

        Raises:
            NotFound: The blob is not stored.
            DataLoss: The blob is damaged, such as a link in its place.
        """

    async def delete(self, sha256: str) -> None:
        """Delete a blob, if it is stored."""

    async def survey(self) -> list[StoredObject]:
        """Return all blobs, and all parts of incomplete uploads, that are stored in the backend."""

    async def remove(self, found: StoredObject) -> None:
        """Delete an object that `survey` returned, if it still exists."""


class BlobStore:
    """Stores blobs and verifies their hashes.

    Args:
        backend: Storage of the verified blobs.
        incoming: Folder for blobs that are being written; no other program may use it.
        max_bytes: Maximum size of a blob in bytes.
    """

    def __init__(self, backend: Backend, incoming: Path, *, max_bytes: int = DEFAULT_MAX_BLOB_BYTES) -> None:
        self._backend = backend
        self._incoming = incoming
        self._max_bytes = max_bytes
        self._arriving: set[Path] = set()
        self._verified: OrderedDict[str, Stamp] = OrderedDict()
        """The stamps of blobs whose bytes were found to have their hash, the least recently verified first."""
        self._verifying: dict[tuple[str, Stamp], asyncio.Task[int | None]] = {}
        """The verifications in progress. Calls share them: a call that is cancelled and repeated does not read from the start."""
        self._replacing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """By hash: held while a blob appears, and while a damaged one is deleted, so that no new copy is deleted in its place."""

    async def open(self) -> None:
        """Create the folder `incoming`, if it does not exist."""
        await asyncio.to_thread(self._incoming.mkdir, parents=True, exist_ok=True)

    async def close(self) -> None:
        """Cancel the verifications in progress, and wait for their end. Call it when no other calls are in progress."""
        tasks = list(self._verifying.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def clear_partials(self, *, dry_run: bool = False) -> tuple[int, int]:
        """Delete the partial uploads of killed processes from the folder `incoming`; with `dry_run`, only count them.

        Uploads that this instance is receiving are neither deleted nor counted.

        Returns:
            Their number, and their total size in bytes.
        """

        def clear() -> tuple[int, int]:
            count = size = 0
            for left in list(self._incoming.iterdir()):
                # `_arriving` contains each upload of this process from before its file exists until after it is deleted.
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
        """Return all blobs, and all parts of incomplete uploads, that are stored in the backend."""
        return await self._backend.survey()

    async def remove(self, found: StoredObject) -> None:
        """Delete an object that `survey` returned, if it still exists."""
        await self._backend.remove(found)

    async def size(self, sha256: str) -> int | None:
        """Return the size of a blob in bytes; None: the blob is not stored. Raise `InvalidInput` if the hash is invalid."""
        found = await self._backend.stamp(check_sha256(sha256))
        return None if found is None else found.size

    async def intact(self, sha256: str) -> int | None:
        """Return the size of a blob in bytes after verifying it; None: the blob is not stored, or was damaged and is now deleted.

        A blob is read once; then its stamp shows whether it has changed. Only `get` finds bytes that change below the file system.
        In an object store, which verifies its objects itself, nothing is read. If the caller is cancelled, the verification continues,
        and the next call for the blob joins it.

        Raises:
            InvalidInput: The hash is invalid.
        """
        found = await self._backend.stamp(check_sha256(sha256))
        if found is None or self._backend.checks_itself or self._verified.get(sha256) == found:
            return None if found is None else found.size
        key = sha256, found
        task = self._verifying.get(key)
        if task is None:
            task = asyncio.create_task(self._verify(sha256), name=f"verify {sha256}")
            self._verifying[key] = task
            task.add_done_callback(lambda ended: self._verification_ended(key, ended))
        return await asyncio.shield(task)

    async def _verify(self, sha256: str) -> int | None:
        with suppress(NotFound, DataLoss):
            return sum([len(chunk) async for chunk in self.get(sha256)])
        return None

    def _verification_ended(self, key: tuple[str, Stamp], task: asyncio.Task[int | None]) -> None:
        del self._verifying[key]
        if not task.cancelled():
            task.exception()  # Otherwise asyncio would report it if all callers were cancelled.

    async def put(self, sha256: str, chunks: AsyncIterable[bytes]) -> int:
        """Store the bytes of a blob under their hash, and return their size in bytes.

        If the blob is already stored and intact, `chunks` is not read. In a folder, a damaged blob is replaced.

        Args:
            sha256: The hash.
            chunks: The bytes of the blob.

        Raises:
            InvalidInput: The hash is invalid.
            DataLoss: The bytes have another hash; nothing is stored.
            Exhausted: The blob is larger than `max_bytes`, or the disk is full; nothing is stored.
        """
        present = await self.intact(sha256)
        if present is not None:
            return present
        path = self._incoming / f"{sha256}.{uuid.uuid4().hex}"
        self._arriving.add(path)
        try:
            size, found = await self._receive(path, chunks)
            if found != sha256:
                raise DataLoss(f"blob {sha256}: the {size} bytes received have the hash {found}; send it again")
            async with self._lock_of(sha256):
                await self._backend.adopt(sha256, path)
                if not self._backend.checks_itself and (stamp := await self._backend.stamp(sha256)) is not None:
                    self._remember(sha256, stamp)
        except OSError as error:
            raise Exhausted(f"blob {sha256} cannot be stored: {error.strerror or error}; make room") from error
        finally:
            path.unlink(missing_ok=True)
            self._arriving.discard(path)
        return size

    async def _receive(self, path: Path, chunks: AsyncIterable[bytes]) -> tuple[int, str]:
        """Write chunks to the new file `path`, flush it to the disk, and return the total size in bytes and the hash.

        Chunks are gathered in memory up to `CHUNK_BYTES`, because starting a thread for each would cost more than its write.
        """
        gathered = bytearray()
        digest = hashlib.sha256()
        size = 0
        file: BinaryIO | None = None

        def write() -> None:
            nonlocal file
            # A buffered file and not a file descriptor: a thread may still write after a cancellation, and closing the
            # file waits for it.
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
        """Yield the bytes of a blob in chunks of at most `CHUNK_BYTES`.

        Raises:
            InvalidInput: The hash is invalid.
            NotFound: The blob is not stored.
            DataLoss: The blob is no file, or its bytes do not match the hash; raised after the last chunk. The blob is then deleted, so
                that a correct copy can be stored.
            BlobUnreadable: The blob cannot be read; it is kept.
        """
        digest = hashlib.sha256()
        read: Stamp | None = None

        def opened(stamp: Stamp) -> None:
            nonlocal read
            read = stamp

        try:
            async with aclosing(self._backend.read(check_sha256(sha256), opened)) as chunks:
                async for chunk in chunks:
                    digest.update(chunk)
                    yield chunk
            if digest.hexdigest() != sha256:
                raise DataLoss(f"blob {sha256} was damaged in the store: its bytes have the hash {digest.hexdigest()}")
        except BlobUnreadable:
            raise
        except DataLoss as error:
            async with self._lock_of(sha256):
                self._verified.pop(sha256, None)
                if await self._backend.stamp(sha256) == read:  # Otherwise it was replaced meanwhile.
                    _log.error("%s; it is deleted", error)
                    await self._backend.delete(sha256)
            raise DataLoss(f"{error}; it is deleted: get or put another copy") from error
        # If the file was written while it was read, its stamp is another one now.
        if read is not None and not self._backend.checks_itself and await self._backend.stamp(sha256) == read:
            self._remember(sha256, read)

    def _remember(self, sha256: str, stamp: Stamp) -> None:
        """Record that the bytes of a blob with this stamp have its hash."""
        self._verified[sha256] = stamp
        self._verified.move_to_end(sha256)
        while len(self._verified) > _MOST_VERIFIED:
            self._verified.popitem(last=False)

    def _lock_of(self, sha256: str) -> asyncio.Lock:
        return self._replacing.setdefault(sha256, asyncio.Lock())

    async def delete(self, sha256: str) -> None:
        """Delete a blob, if it is stored. Raise `InvalidInput` if the hash is invalid."""
        await self._backend.delete(check_sha256(sha256))


async def _to_the_end(work: Callable[[], None]) -> None:
    """Run `work` in a thread, wait for its end, and raise its error, if it raises one.

    If the caller is cancelled, the function still waits for the end of the work, and then raises CancelledError instead.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()
        raise


def open_backend(url: str | None, data: Path) -> Backend:
    """Return the backend for a URL: a folder for file://, else an object store.

    Args:
        url: The URL; None: the folder `store/` in the data folder.
        data: The data folder of the service.

    Raises:
        InvalidInput: The URL is not supported.
    """
    if url is None:
        return LocalBackend(data / "store")
    if url.startswith("file://"):
        return LocalBackend(Path(url.removeprefix("file://")))
    return object_backend(url)
