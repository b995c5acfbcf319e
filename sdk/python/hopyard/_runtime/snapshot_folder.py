"""A snapshot as a folder: as it was saved, under the name of the file that `hopyard._runtime.snapshot_file.pack` would make of it.

Nodes keep what training processes save in this form, so that nothing is copied to name it, to load it, or to give it to
another node: each of these reads it once. Only what leaves for the store is packed, on its way. Whoever has such a folder
changes nothing in it: its name is the hash of its contents.
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from hopyard._runtime.hashing import Hashed
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
"""What an archive's size is a multiple of; it ends with at least two empty blocks."""


@dataclass(frozen=True, slots=True)
class FolderMember:
    """A file or a folder in a snapshot.

    Attributes:
        name: inside the snapshot, its parts separated by "/".
        size: of a file, in bytes; None: it is a folder.
    """

    name: str
    size: int | None = None


def members(directory: Path, limits: SnapshotLimits = DEFAULT_LIMITS) -> list[FolderMember]:
    """What `directory` holds, in the order of its archive: folders before their contents.

    Raises:
        SnapshotRefusedError: something other than files and folders, or more than `limits` allow.
        OSError: it cannot be read.
    """
    found = []
    for name, path in sorted(walk(directory), key=lambda member: os.fsencode(member[0])):
        status = path.stat(follow_symlinks=False)
        found.append(FolderMember(name, None if path.is_dir() else status.st_size))
    _check(found, limits, str(directory))
    return found


def open_archive(directory: Path, limits: SnapshotLimits = DEFAULT_LIMITS) -> BinaryIO:
    """The bytes that `pack` would write of `directory`, made while they are read; whoever opened it closes it.

    Raises:
        SnapshotRefusedError, OSError: as `members`, while it is read.
    """
    return io.BufferedReader(_Reader(directory, _listed(directory, limits), packed=True), _BLOCK)


def open_contents(directory: Path, found: Sequence[FolderMember]) -> BinaryIO:
    """The contents of its files, one behind the other in the order of `found`; whoever opened it closes it.

    Raises:
        SnapshotCorruptError: while it is read: a file has become shorter.
    """
    return io.BufferedReader(_Reader(directory, found, packed=False), _BLOCK)


def open_packed(snapshot: Path) -> BinaryIO:
    """The bytes of a snapshot that is a packed file or a folder; whoever opened it closes it.

    Raises:
        FileNotFoundError: it is neither.
        SnapshotRefusedError, OSError: as `open_archive`.
    """
    return open_archive(snapshot) if snapshot.is_dir() else snapshot.open("rb")


def hash_folder(directory: Path, limits: SnapshotLimits = DEFAULT_LIMITS) -> SnapshotFileInfo:
    """The hash and the size of the file that `pack` would make of `directory`.

    Raises:
        SnapshotRefusedError, OSError: as `members`.
    """
    with _Reader(directory, members(directory, limits), packed=True) as archive, Hashed() as hashed:
        hashed.drain(archive)
        return SnapshotFileInfo(hashed.hexdigest(), hashed.size)


def keep(saved: Path, target: Path) -> SnapshotFileInfo:
    """Make what was saved into the folder `saved` a snapshot at `target`, which is not there; returns its name.

    The folder itself becomes the snapshot, without waiting for the disk: what a power failure damages the hash tells. Where it cannot
    (another file system; a file that has a second name, under which it may change) `target` is a packed file, and
    `saved` stays.

    Raises:
        SnapshotRefusedError, OSError: as `pack`; `target` is then not there.
    """
    info = hash_folder(saved)
    if not _has_second_names(saved):
        with suppress(OSError):
            saved.chmod(0o700)
            os.rename(saved, target)
            return info
    return pack(saved, target, durable=False)


def place(partial: Path, target: Path) -> bool:
    """Give a snapshot, file or folder, its place at once.

    Returns:
        Whether it has it: what is there already, which has the same contents, stays and counts as new; so does `partial`.
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
    """Give a snapshot its place, as `place`; nothing is left of `partial`."""
    if not place(partial, target):
        remove(partial)


def remove(snapshot: Path) -> None:
    """Delete a snapshot, file or folder; one that is not there is fine."""
    try:
        snapshot.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):  # POSIX lets systems choose
        snapshot.chmod(0o700)
        with suppress(OSError, SnapshotRefusedError):
            for _, path in walk(
                snapshot
            ):  # A folder comes before what is in it, and may be one that nobody may write to.
                if path.is_dir():
                    path.chmod(0o700)
        shutil.rmtree(snapshot, ignore_errors=True)


def size_of(snapshot: Path) -> int:
    """The bytes of a snapshot's file, or of the files in its folder; 0: it is not there."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sum(path.stat().st_size for _, path in walk(snapshot) if path.is_file())
    with suppress(FileNotFoundError):
        return snapshot.stat().st_size
    return 0


def loadable(snapshot: Path, sha256: str, folder: Path, *, verified: bool = False) -> Path:
    """A folder with the contents of a snapshot: itself, if it is one; else a packed file's, unpacked to `folder`.

    Args:
        snapshot: a folder or a packed file.
        sha256: its name.
        folder: not there yet.
        verified: the caller knows that the hash was found right a moment ago.

    Raises:
        SnapshotCorruptError: its bytes do not have this hash.
        SnapshotRefusedError, OSError: as `unpack`.
    """
    if not snapshot.is_dir():
        unpack(snapshot, folder, sha256, durable=False, verified=verified)
        return folder
    if not verified and (found := hash_folder(snapshot)).sha256 != sha256:
        raise SnapshotCorruptError(f"{snapshot} ({found.size} bytes) has the hash {found.sha256}; expected {sha256}")
    return snapshot


class FolderWriter:
    """Makes a folder of the contents of its files, and finds its hash on the way. Nothing waits for the disk.

    Names are checked before anything is made; whoever takes the folder compares the hash first.
    """

    def __init__(self, folder: Path, found: Sequence[FolderMember], limits: SnapshotLimits = DEFAULT_LIMITS) -> None:
        """Begin with `folder`, which is empty; `found` is in order, folders before their contents.

        Raises:
            SnapshotRefusedError: a name that is not allowed or comes twice, or more than `limits` allow.
        """
        _check(found, limits, "the snapshot")
        for member in found:
            check_name(member.name)
        self._folder = folder
        self._members = iter(found)
        self._hashed = Hashed()
        self._file: io.FileIO | None = None
        self._left = 0
        self._next()

    def write(self, data: ReadableBuffer) -> None:
        """Take what follows. It may be read until the next call: its memory is to hold nothing else before.

        Raises:
            SnapshotCorruptError: it is more than the files hold.
            OSError: it cannot be written.
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
        """The hash and the size of the archive of what was written.

        Raises:
            SnapshotCorruptError: contents are missing.
        """
        if self._file is not None:
            raise SnapshotCorruptError(f"{self._left} bytes of {Path(self._file.name).name!r} are missing")
        self._hashed.update(_end(self._hashed.size))
        return SnapshotFileInfo(self._hashed.hexdigest(), self._hashed.size)

    def close(self) -> None:
        """Write no more."""
        self._hashed.close()
        if self._file is not None:
            self._file.close()

    def _next(self) -> None:
        """Close the present file, and open the next one that is not empty."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._hashed.update(_padding(self._hashed.size))
        for member in self._members:
            self._hashed.update(header(member.name, member.size))
            path = self._folder / member.name
            try:
                if member.size is None:
                    path.mkdir()
                    continue
                # "x" never follows or replaces what an earlier member made.
                file = io.FileIO(path, "x")
            except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
                raise SnapshotRefusedError(f"a member comes twice or before its folder: {error}") from error
            if member.size:
                self._file, self._left = file, member.size
                return
            file.close()


class _Reader(io.RawIOBase):
    """The contents of members, with what an archive has around them or without; `size` counts what was read."""

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
        """What comes one behind the other; a file is closed when the next piece is asked for."""
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
    """As `members`, which are looked for when the first one is wanted: whoever opens is in a hurry."""
    yield from members(directory, limits)


def _padding(size: int) -> bytes:
    """What follows a file's contents, after so many bytes of the archive."""
    return bytes(-size % _ARCHIVE_BLOCK)


def _end(size: int) -> bytes:
    """What an archive ends with."""
    return bytes(2 * _ARCHIVE_BLOCK + -(size + 2 * _ARCHIVE_BLOCK) % _ARCHIVE_RECORD)


def _check(found: Sequence[FolderMember], limits: SnapshotLimits, what: str) -> None:
    if len(found) > limits.files:
        raise SnapshotRefusedError(f"{what} holds {len(found)} files and folders; allowed: {limits.files}")
    size = sum(max(member.size or 0, 0) for member in found)
    if size > limits.size:
        raise SnapshotRefusedError(f"{what} holds {size} bytes; allowed: {limits.size}")


def _has_second_names(directory: Path) -> bool:
    return any(path.is_file() and path.stat().st_nlink > 1 for _, path in walk(directory))
