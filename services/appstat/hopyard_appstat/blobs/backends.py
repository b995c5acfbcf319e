"""Backends that store the bytes of blobs: a folder, or an object store (S3, GCS, Azure) through the library obstore.

A blob is named by its hash: the SHA-256 of its bytes as 64 digits of lower-case hex. Callers of a backend have validated the hash.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import stat
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore, from_url

from hopyard.errors import DataLoss, Exhausted, InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from obstore import ObjectMeta

CHUNK_BYTES: Final = 1024 * 1024
"""Maximum size in bytes of a chunk of a blob, in uploads and downloads."""


_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PART: Final = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{32}\.part")


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that a backend found in its storage: a blob, or a part of an incomplete upload.

    Attributes:
        key: Path of the object within the backend.
        sha256: Hash of the blob; empty: a part of an incomplete upload.
        size: Size in bytes.
        modified_at: Time of the last write, in seconds since the Unix epoch.
    """

    key: str
    sha256: str
    size: int
    modified_at: float


class BlobUnreadable(DataLoss):
    """Raised if the bytes of a blob cannot be read, such as after an error of the disk. The blob is kept: the disk may recover."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identifies the present bytes of a blob in a backend: they are unchanged as long as the stamp is.

    Attributes:
        size: Size in bytes.
        version: Changes with each write, as far as the backend notices it.
    """

    size: int
    version: tuple[int, ...] = ()


def _close(opening: asyncio.Future[BufferedReader]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


class LocalBackend:
    """A backend that stores blobs as files `<folder>/<first two digits of the hash>/<hash>`.

    Files and directory entries are flushed to the disk (fsync) before a blob counts as stored.

    Args:
        folder: The folder of the store. `adopt` creates it if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def checks_itself(self) -> bool:
        """False: a file system returns damaged bytes."""
        return False

    async def stamp(self, sha256: str) -> Stamp | None:
        """Return the stamp of a blob; None: the blob is not stored. A link or a device in its place is no blob.

        The stamp does not change if bytes change below the file system.
        """
        return await asyncio.to_thread(self._stamp, sha256)

    async def adopt(self, sha256: str, file: Path) -> None:
        """Store a complete, verified and flushed file as the blob of a hash. If the blob is stored already, the file replaces it.

        The file is moved. If it is on another disk, it is copied instead, and remains where it was.

        Raises:
            OSError: The blob cannot be written, for example because the disk is full.
        """
        await asyncio.to_thread(self._adopt, sha256, file)

    async def read(self, sha256: str, opened: Callable[[Stamp], None] | None = None) -> AsyncGenerator[bytes]:
        """Yield the bytes of a blob in chunks of at most `CHUNK_BYTES`. If the blob is deleted meanwhile, reading continues to its end.

        Args:
            sha256: The hash.
            opened: Called with the stamp of these bytes before the first chunk.

        Raises:
            NotFound: The blob is not stored.
            DataLoss: Something other than a file is in its place.
            BlobUnreadable: The file cannot be read.
        """
        opening = asyncio.ensure_future(asyncio.to_thread(_open_file, self._path(sha256)))
        try:
            file = await asyncio.shield(opening)
        except FileNotFoundError as error:
            raise NotFound(f"blob {sha256} is not in the store") from error
        except OSError as error:
            raise _unreadable(sha256, error) from error
        except asyncio.CancelledError:
            opening.add_done_callback(_close)  # The thread opens the file in spite of the cancellation.
            raise
        try:
            if opened is not None:
                opened(_stamp_of(os.fstat(file.fileno())))
            while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                yield chunk
        except OSError as error:
            raise _unreadable(sha256, error) from error
        finally:
            file.close()

    async def delete(self, sha256: str) -> None:
        """Delete a blob, if it is stored."""
        await asyncio.to_thread(_remove, self._path(sha256))

    async def survey(self) -> list[StoredObject]:
        """Return all blobs in the folder, and incomplete files that an interrupted `adopt` left. Other files are ignored."""
        return await asyncio.to_thread(lambda: list(self._survey()))

    async def remove(self, found: StoredObject) -> None:
        """Delete an object that `survey` returned, if it still exists."""
        await asyncio.to_thread((self._folder / found.key).unlink, missing_ok=True)

    def _survey(self) -> Iterator[StoredObject]:
        for path in sorted(self._folder.glob("[0-9a-f][0-9a-f]/*")):
            name = path.name
            if not (name.startswith(path.parent.name) and (_SHA256.fullmatch(name) or _PART.fullmatch(name))):
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # The file was renamed or deleted after it was listed.
            sha256 = "" if name.endswith(".part") else name
            yield StoredObject(f"{path.parent.name}/{name}", sha256, status.st_size, status.st_mtime)

    def _path(self, sha256: str) -> Path:
        return self._folder / sha256[:2] / sha256

    def _stamp(self, sha256: str) -> Stamp | None:
        try:
            status = os.lstat(self._path(sha256))
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return _stamp_of(status)

    def _adopt(self, sha256: str, file: Path) -> None:
        path = self._path(sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        try:
            os.replace(file, path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(file, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # The new name must also survive a power failure.
        finally:
            os.close(folder)


def _stamp_of(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns))


def _open_file(path: Path) -> BufferedReader:
    """Open a regular file for reading, without following a link or waiting for a pipe.

    Raises:
        OSError: The file does not exist, or cannot be opened, or something else is in its place.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a regular file")
    return os.fdopen(handle, "rb")


def _unreadable(sha256: str, error: OSError) -> Exception:
    """Return the error for a blob that could not be read."""
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
        return Exhausted(f"blob {sha256} cannot be read now: {error.strerror}")
    if error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
        return DataLoss(f"blob {sha256} was damaged in the store: it is not a regular file")
    return BlobUnreadable(f"blob {sha256} cannot be read from the store: {error.strerror or error}")


def _remove(path: Path) -> None:
    """Delete whatever is in the place of a blob, without following a link."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # POSIX allows either error for a folder.
        if path.is_symlink() or not path.is_dir():
            raise
        shutil.rmtree(path)


def _copy(file: Path, path: Path) -> None:
    """Copy a file to another disk under a temporary name, flush it to the disk, and rename it to `path`."""
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with file.open("rb") as source, part.open("xb") as target:
            shutil.copyfileobj(source, target, CHUNK_BYTES)
            target.flush()
            os.fsync(target.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


class ObjectBackend:
    """A backend that stores blobs as objects `<first two digits of the hash>/<hash>` of an object store.

    All methods raise `Unavailable` if the object store fails.

    Args:
        store: The client of the object store, with bucket and prefix.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def checks_itself(self) -> bool:
        """True: object stores verify their objects."""
        return True

    async def stamp(self, sha256: str) -> Stamp | None:
        """Return the stamp of a blob; None: the blob is not stored."""
        try:
            return _stamp_of_object(await obstore.head_async(self._store, _key(sha256)))
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise _unavailable(error) from error

    async def adopt(self, sha256: str, file: Path) -> None:
        """Upload a complete, verified file as the blob of a hash. If the blob is stored already, the file replaces it.

        The object becomes visible when the upload is complete. The file remains where it was.

        Raises:
            Exhausted: A quota of the object store is exceeded.
        """
        try:
            await obstore.put_async(self._store, _key(sha256), file)
        except BaseError as error:
            raise _unavailable(error) from error

    async def read(self, sha256: str, opened: Callable[[Stamp], None] | None = None) -> AsyncGenerator[bytes]:
        """Yield the bytes of a blob in chunks of at most `CHUNK_BYTES`.

        Args:
            sha256: The hash.
            opened: Called with the stamp of these bytes before the first chunk.

        Raises:
            NotFound: The blob is not stored.
        """
        try:
            answer = await obstore.get_async(self._store, _key(sha256))
            if opened is not None:
                opened(_stamp_of_object(answer.meta))
            async for part in answer.stream(min_chunk_size=CHUNK_BYTES):
                whole = bytes(part)
                for start in range(0, len(whole), CHUNK_BYTES):
                    yield whole[start : start + CHUNK_BYTES]
        except FileNotFoundError as error:
            raise NotFound(f"blob {sha256} is not in the store") from error
        except BaseError as error:
            raise _unavailable(error) from error

    async def delete(self, sha256: str) -> None:
        """Delete a blob, if it is stored."""
        try:
            await obstore.delete_async(self._store, _key(sha256))
        except FileNotFoundError:
            return
        except BaseError as error:
            raise _unavailable(error) from error

    async def survey(self) -> list[StoredObject]:
        """Return all blobs in the object store. Other objects are ignored. Incomplete uploads are not included."""
        found: list[StoredObject] = []
        try:
            async for batch in obstore.list(self._store):
                for meta in batch:
                    sha256 = meta["path"].rpartition("/")[2]
                    if _SHA256.fullmatch(sha256) and meta["path"] == _key(sha256):
                        found.append(
                            StoredObject(meta["path"], sha256, meta["size"], meta["last_modified"].timestamp())
                        )
        except BaseError as error:
            raise _unavailable(error) from error
        return found

    async def remove(self, found: StoredObject) -> None:
        """Delete a blob that `survey` returned, if it still exists."""
        await self.delete(found.sha256)


def object_backend(url: str) -> ObjectBackend:
    """Return the backend for the URL of an object store, such as s3://BUCKET/PREFIX. Credentials come from the environment.

    Raises:
        InvalidInput: obstore does not support the URL.
    """
    try:
        return ObjectBackend(from_url(url))
    except (BaseError, ValueError) as error:
        raise InvalidInput(
            f"--store: found {url!r} ({error}); allowed are file:///FOLDER, s3://, gs:// and az:// with a bucket "
            "and a prefix"
        ) from error


def _stamp_of_object(meta: ObjectMeta) -> Stamp:
    return Stamp(meta["size"], (round(meta["last_modified"].timestamp() * 1e6),))


def _key(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256}"


def _unavailable(error: BaseError) -> Exception:
    """Return the error for a failure of the object store: `Exhausted` if a quota is exceeded, else `Unavailable`.

    The object store's client has already retried the operation.
    """
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "quota" in text.lower():
        return Exhausted(f"the quota of the object store is exceeded: {text}")
    return Unavailable(f"the object store failed: {text}")
