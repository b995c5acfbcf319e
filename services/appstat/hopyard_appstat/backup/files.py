"""Copies and reads of whole files with their SHA-256. Links and other things that are not plain files are refused.

A file that cannot be read, for example because its disk is defective, raises `DataLoss` with its path. An `OSError` therefore concerns
a file that is written, or this process.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from hopyard._common.private_files import FILE_MODE
from hopyard.errors import DataLoss

CHUNK_BYTES: Final = 1024 * 1024

_OF_PROCESS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR)
"""Errors of reads that say nothing about the file."""


def blob_path(folder: Path, sha256: str) -> Path:
    """Return the path of a blob in the folder of a store, or in the folder `blobs` of a target."""
    return folder / sha256[:2] / sha256


def one_contains_other(one: Path, other: Path) -> bool:
    """Return whether two folders, which need not exist, are the same, or one of them is inside the other. Links are followed."""
    # `Path.resolve` raises an error for links that lead to each other.
    first, second = Path(os.path.realpath(one)), Path(os.path.realpath(other))
    return first.is_relative_to(second) or second.is_relative_to(first)


@contextmanager
def opened(path: Path) -> Iterator[BufferedReader]:
    """Open a plain file for reading.

    Raises:
        FileNotFoundError: There is no such file.
        DataLoss: There is a link or something else that is not a plain file, or the file cannot be opened.
    """
    descriptor = open_plain(path)
    with os.fdopen(descriptor, "rb") as file:
        yield file


def open_plain(path: Path) -> int:
    """Return a descriptor of a plain file for reading, which the caller closes. Errors as for `opened`."""
    try:
        # Without O_NONBLOCK, a named pipe would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise DataLoss(f"{path}: found a link, needed a file") from error
        raise _unreadable(path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataLoss(f"{path}: found something that is not a file")
    return descriptor


def plain_size(path: Path) -> int | None:
    """Return the size of a plain file in bytes; None: there is none at this path."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def content_of(path: Path) -> bytes:
    """Return the content of a plain file. Errors as for `opened`; DataLoss also if the file cannot be read to its end."""
    with opened(path) as file:
        return _read(file, path)


def hash_of(path: Path) -> str:
    """Return the SHA-256 of a plain file. Errors as for `content_of`."""
    digest = hashlib.sha256()
    with opened(path) as file:
        while chunk := _read(file, path, CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def copy(source: BinaryIO, name: Path, path: Path) -> tuple[str, int]:
    """Copy a file into a new private file, flush it to the disk, and return the SHA-256 and the size of the copied bytes.

    Args:
        source: The file to copy.
        name: Its path, for messages.
        path: Path of the new file. After an error, no part of it is left.

    Raises:
        DataLoss: The source cannot be read.
        OSError: The new file cannot be written, for example because the disk is full. The error has its path.
    """
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as target:
            while chunk := _read(source, name, CHUNK_BYTES):
                digest.update(chunk)
                size += len(chunk)
                view = memoryview(chunk)
                while view:
                    view = view[target.write(view) :]
            os.fsync(target.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    return digest.hexdigest(), size


def _read(file: BinaryIO, path: Path, size: int = -1) -> bytes:
    try:
        return file.read(size)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError) -> Exception:
    if error.errno in _OF_PROCESS:
        return OSError(error.errno, error.strerror, str(path))
    return DataLoss(f"{path}: cannot be read: {error.strerror or error}")


def sync(path: Path) -> None:
    """Flush a file or the entries of a folder to the disk, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
