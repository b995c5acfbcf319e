"""A snapshot as a folder: the saved files, under the hash of the archive that `snapshot_file.pack` would create of them.

Nodes store snapshots of training processes in this form, so that naming, loading and transfer to another node need no
copy and read the files once each. A snapshot is packed only when it is uploaded to the store. Nothing may change such a
folder, because its name is the hash of its contents.
"""

from __future__ import annotations

import io
import os
import shutil
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from hopyard._common.private_files import FOLDER_MODE, private_opener
from hopyard._runtime.hashing import StreamingHash
from hopyard._runtime.snapshot_file import (
    DEFAULT_LIMITS,
    SnapshotCorruptError,
    SnapshotFileInfo,
    SnapshotLimits,
    SnapshotRefusedError,
    check_name,
    header,
    pack,
    unpack,
    walk,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_BLOCK: Final = 256 * 1024
_ARCHIVE_BLOCK: Final = 512
_ARCHIVE_RECORD: Final = 10240
"""Record size in bytes: the size of an archive is a multiple of it, and at least two empty blocks end the archive."""


@dataclass(frozen=True, slots=True)
class FolderMember:
    """A file or a folder in a snapshot.

    Attributes:
        name: Path in the snapshot, with "/" as separator.
        size: Size of a file in bytes; None: the member is a folder.
    """

    name: str
    size: int | None = None


def members(directory: Path, limits: SnapshotLimits = DEFAULT_LIMITS) -> list[FolderMember]:
    """Return the files and folders below `directory` in the order of its archive: sorted by name, folders before their contents.

    Args:
        directory: The folder.
        limits: Limits for the number of members and their total size.

    Raises:
        SnapshotRefusedError: The directory contains something other than files and folders, or exceeds `limits`.
        OSError: The directory cannot be read.
    """
    found = []
    for name, path in sorted(walk(directory), key=lambda member: os.fsencode(member[0])):
        status = path.stat(follow_symlinks=False)
        found.append(FolderMember(name, None if path.is_dir() else status.st_size))
    _check(found, limits, str(directory))
    return found


def open_archive(directory: Path, limits: SnapshotLimits = DEFAULT_LIMITS) -> BinaryIO:
    """Return a stream of the archive that `snapshot_file.pack` would write of `directory`. The caller closes it.

    The archive is produced while the stream is read; nothing is written to disk.

    Args:
        directory: Folder with the contents of the snapshot.
        limits: Limits for the contents.

    Raises:
        SnapshotRefusedError, OSError: As for `members`, but raised by reads from the stream.
    """
    return io.BufferedReader(_Reader(directory, _listed(directory, limits), packed=True), _BLOCK)


def open_contents(directory: Path, found: Sequence[FolderMember]) -> BinaryIO:
    """Return a stream of the concatenated contents of files in a folder. The caller closes it.

    Args:
        directory: The folder.
        found: Members of the folder, as `members` returns them; folders contribute no bytes.

    Raises:
        SnapshotCorruptError: A file is shorter than listed; raised by reads from the stream.
    """
    return io.BufferedReader(_Reader(directory, found, packed=False), _BLOCK)


def open_packed(snapshot: Path) -> BinaryIO:
    """Return a stream of the archive of a snapshot. The caller closes it.

    Args:
        snapshot: A packed file, which is read as it is, or a folder, which is packed while the stream is read.

    Raises:
        FileNotFoundError: The snapshot does not exist.
        SnapshotCorruptError: It is neither a folder nor a file.
        SnapshotRefusedError, OSError: As for `open_archive`.
    """
    if snapshot.is_dir():
        return open_archive(snapshot)
    # Without O_NONBLOCK, a pipe would block.
    handle = os.open(snapshot, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise SnapshotCorruptError(f"{snapshot} is neither a folder nor a file")
    return os.fdopen(handle, "rb")


def hash_folder(directory: Path, limits: SnapshotLimits = DEFAULT_LIMITS) -> SnapshotFileInfo:
    """Return the hash and size of the archive that `snapshot_file.pack` would write of `directory`.

    Args:
        directory: Folder with the contents of the snapshot.
        limits: Limits for the contents.

    Raises:
        SnapshotRefusedError, OSError: As for `members`.
    """
    with _Reader(directory, members(directory, limits), packed=True) as archive, StreamingHash() as hashed:
        hashed.drain(archive)
        return SnapshotFileInfo(hashed.hexdigest(), hashed.size)


def keep(saved: Path, target: Path) -> SnapshotFileInfo:
    """Turn a folder of saved files into a private snapshot, and return the hash and size of its archive.

    Normally the folder is renamed, without a flush to disk: the hash reveals damage by a power failure. If it cannot be
    renamed (another file system), or a file has several hard links, through which it could change, `target` becomes a
    packed file and `saved` stays.

    Args:
        saved: Folder of the saved files.
        target: Path of the snapshot, which must not exist.

    Raises:
        SnapshotRefusedError, OSError: As for `snapshot_file.pack`; `target` then does not exist.
    """
    info = hash_folder(saved)
    if not _has_second_names(saved):
        with suppress(OSError):
            _make_private(saved)
            os.rename(saved, target)
            return info
    return pack(saved, target, durable=False)


def _make_private(saved: Path) -> None:
    """Remove all rights of other users from a folder and its members. The hash of a snapshot does not depend on modes.

    Raises:
        OSError: The folder, or a member that others have rights to, belongs to another user.
    """
    saved.chmod(FOLDER_MODE)
    for _, path in walk(saved):
        mode = path.stat().st_mode
        if mode & 0o077:
            path.chmod(mode & 0o700)


def place(partial: Path, target: Path) -> bool:
    """Move a snapshot, file or folder, atomically to its final path.

    The name of `target` is the hash of the snapshot, so an existing `target` has the same contents.

    Args:
        partial: The complete snapshot under a temporary name, on the same file system.
        target: The final path.

    Returns:
        True if it was moved; an existing packed file at `target` is replaced. False if `target` is an existing folder: then the
        modification time of `target` is set to now, and `partial` stays.

    Raises:
        OSError: Moving failed, and `target` does not exist.
    """
    try:
        os.replace(partial, target)
    except OSError:
        if not target.exists():
            raise
        os.utime(target)
        return False
    return True


def settle(partial: Path, target: Path) -> None:
    """Move a snapshot from `partial` to its final path `target`; if `target` is an existing folder, delete `partial` instead.

    Raises:
        OSError: Moving failed, and `target` does not exist.
    """
    if not place(partial, target):
        remove(partial)


def remove(snapshot: Path) -> None:
    """Delete a snapshot, file or folder, if it exists.

    Read-only folders are made writable first. Members of a folder that cannot be deleted stay, without an error.
    """
    try:
        snapshot.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # POSIX allows either error for a folder.
        snapshot.chmod(0o700)
        with suppress(OSError, SnapshotRefusedError):
            for _, path in walk(
                snapshot
            ):  # `walk` yields a folder before its contents, so a read-only one is made writable first.
                if path.is_dir():
                    path.chmod(0o700)
        shutil.rmtree(snapshot, ignore_errors=True)


def size_of(snapshot: Path) -> int:
    """Return the size in bytes of a snapshot's file, or of all files in its folder; 0 if it does not exist."""
    with suppress(FileNotFoundError):
        status = os.lstat(snapshot)
        if stat.S_ISLNK(status.st_mode):
            return snapshot.stat().st_size
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
    size = 0
    for place, _, names in os.walk(snapshot):
        for name in names:
            with suppress(FileNotFoundError):
                status = os.lstat(os.path.join(place, name))
                size += status.st_size if stat.S_ISREG(status.st_mode) else 0
    return size


def loadable(snapshot: Path, sha256: str, folder: Path, *, verified: bool = False) -> Path:
    """Return a folder with the contents of a verified snapshot.

    It is `snapshot` itself if that is a folder, else `folder`, into which the packed file is unpacked.

    Args:
        snapshot: A folder or a packed file.
        sha256: Hash of the snapshot.
        folder: Target for unpacking; must not exist.
        verified: Skip the verification, because the caller has just verified the hash.

    Raises:
        SnapshotCorruptError: The bytes do not match the hash, or the folder contains a link or a device.
        SnapshotRefusedError, OSError: As for `snapshot_file.unpack`.
    """
    if not snapshot.is_dir():
        unpack(snapshot, folder, sha256, durable=False, verified=verified)
        return folder
    if verified:
        return snapshot
    try:
        found = hash_folder(snapshot)
    except SnapshotRefusedError as error:  # It was accepted when it was taken, so it has changed since.
        raise SnapshotCorruptError(str(error)) from error
    if found.sha256 != sha256:
        raise SnapshotCorruptError(f"{snapshot} ({found.size} bytes) has the hash {found.sha256}; expected {sha256}")
    return snapshot


class FolderWriter:
    """Writes a snapshot folder from a stream of its files' contents, and computes the hash of its archive.

    Pass the concatenated contents to `write`, then call `finish` and compare the hash before the folder is used. Member names
    are checked before anything is written. Nothing is flushed to disk.

    The constructor creates the members up to and including the first file that is not empty.

    Args:
        folder: The target, an empty folder.
        found: All members of the snapshot, folders before their contents.
        limits: Limits for the members.

    Raises:
        SnapshotRefusedError: A name is not allowed or occurs twice, or `limits` are exceeded.
    """

    def __init__(self, folder: Path, found: Sequence[FolderMember], limits: SnapshotLimits = DEFAULT_LIMITS) -> None:
        _check(found, limits, "the snapshot")
        for member in found:
            check_name(member.name)
        self._folder = folder
        self._members = iter(found)
        self._hashed = StreamingHash()
        self._file: io.FileIO | None = None
        self._left = 0
        self._next()

    def write(self, data: ReadableBuffer) -> None:
        """Write the next bytes of the concatenated contents; they may span several files.

        The caller must not change `data` until the next call of `write`, `finish` or `close`, because a thread may still read it.

        Raises:
            SnapshotCorruptError: There are more bytes than the listed sizes of all files.
            OSError: Writing failed.
        """
        view = memoryview(data)
        while view:
            if self._file is None:
                raise SnapshotCorruptError(f"{len(view)} bytes more than the snapshot's files hold")
            part, view = view[: self._left], view[self._left :]
            self._hashed.update(part)
            self._left -= len(part)
            while part:
                part = part[self._file.write(part) :]
            if not self._left:
                self._next()

    def finish(self) -> SnapshotFileInfo:
        """Return the hash and size of the archive of the written files.

        Raises:
            SnapshotCorruptError: Fewer bytes were written than the listed sizes of all files.
        """
        if self._file is not None:
            raise SnapshotCorruptError(f"{self._left} bytes of {Path(self._file.name).name!r} are missing")
        self._hashed.update(_end(self._hashed.size))
        return SnapshotFileInfo(self._hashed.hexdigest(), self._hashed.size)

    def close(self) -> None:
        """Close the open file and end the hashing thread. Written files stay."""
        self._hashed.close()
        if self._file is not None:
            self._file.close()

    def _next(self) -> None:
        """Close the current file and create the following members up to and including the next file that is not empty."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._hashed.update(_padding(self._hashed.size))
        for member in self._members:
            self._hashed.update(header(member.name, member.size))
            path = self._folder / member.name
            try:
                if member.size is None:
                    path.mkdir(FOLDER_MODE)
                    continue
                # Mode "x" neither follows a link nor replaces a file that an earlier member created.
                file = io.FileIO(path, "x", opener=private_opener)
            except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
                raise SnapshotRefusedError(f"a member comes twice or before its folder: {error}") from error
            if member.size:
                self._file, self._left = file, member.size
                return
            file.close()


class _Reader(io.RawIOBase):
    """A readable stream of the contents of a folder's files, which are opened one after the other.

    `size` is the number of bytes read so far.

    Args:
        directory: The folder.
        found: Members of the folder, in the order of the stream; folders contribute no contents.
        packed: Whether the stream also has the archive's headers and padding.
    """

    def __init__(self, directory: Path, found: Iterable[FolderMember], *, packed: bool) -> None:
        self._directory = directory
        self._packed = packed
        self._pieces = self._read(found)
        self._piece: bytes | tuple[io.FileIO, int] = b""
        self.size = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = piece
        if isinstance(self._piece, bytes):
            count = min(len(view), len(self._piece))
            view[:count], self._piece = self._piece[:count], self._piece[count:]
        else:
            file, left = self._piece
            count = file.readinto(view[:left])
            if not count:
                raise SnapshotCorruptError(f"{file.name!r} has become shorter by {left} bytes")
            self._piece = (file, left - count) if count < left else b""
        self.size += count
        return count

    def close(self) -> None:
        self._pieces.close()
        super().close()

    def _read(self, found: Iterable[FolderMember]) -> Generator[bytes | tuple[io.FileIO, int]]:
        """Yield the parts of the stream: bytes, or an open file with its expected size.

        A file is closed when the next part is requested.

        Args:
            found: Members of the folder, in the order of the stream.
        """
        for member in found:
            if self._packed:
                yield header(member.name, member.size)
            if member.size:
                with io.FileIO(self._directory / member.name) as file:
                    yield file, member.size
                if self._packed:
                    yield _padding(self.size)
        if self._packed:
            yield _end(self.size)


def _listed(directory: Path, limits: SnapshotLimits) -> Iterator[FolderMember]:
    """Yield the `members` of `directory`, checked with `limits`.

    The folder is listed only when the first member is requested, so that opening a stream is fast.
    """
    yield from members(directory, limits)


def _padding(size: int) -> bytes:
    """Return the zero bytes that follow a file's contents in an archive that has `size` bytes up to there."""
    return bytes(-size % _ARCHIVE_BLOCK)


def _end(size: int) -> bytes:
    """Return the zero bytes that end an archive that has `size` bytes up to there."""
    return bytes(2 * _ARCHIVE_BLOCK + -(size + 2 * _ARCHIVE_BLOCK) % _ARCHIVE_RECORD)


def _check(found: Sequence[FolderMember], limits: SnapshotLimits, what: str) -> None:
    if len(found) > limits.files:
        raise SnapshotRefusedError(f"{what} holds {len(found)} files and folders; allowed: {limits.files}")
    size = sum(max(member.size or 0, 0) for member in found)
    if size > limits.size:
        raise SnapshotRefusedError(f"{what} holds {size} bytes; allowed: {limits.size}")


def _has_second_names(directory: Path) -> bool:
    return any(path.is_file() and path.stat().st_nlink > 1 for _, path in walk(directory))
