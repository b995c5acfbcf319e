"""A snapshot as one file: a canonical archive of a directory, identified by the SHA-256 of its bytes.

The archive is an uncompressed tar with names, contents and sizes of the members, sorted by name, and without times,
owners and modes. Equal directories therefore always give equal files and hashes. It is not compressed, because trained
weights compress poorly and a compressor's output changes between releases, which would give equal snapshots different
hashes. A store may compress it internally.

`unpack` verifies the hash of the whole file before it parses anything, and creates only regular files and folders inside
the target directory, within limits.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Final

from hopyard._common.private_files import FOLDER_MODE, private_opener
from hopyard._runtime.hashing import StreamingHash
from hopyard._runtime.untrusted.tar_members import DamagedArchive, RefusedArchive, TarMember, members

_BLOCK: Final = 1024 * 1024
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class SnapshotFileError(Exception):
    """Base class of the errors of packing and unpacking snapshots."""


class SnapshotCorruptError(SnapshotFileError):
    """Raised if the bytes of a snapshot do not match its hash; the caller should fetch another copy."""


class SnapshotRefusedError(SnapshotFileError):
    """Raised if a snapshot has members that are not allowed: links, devices, names outside its directory, too many or too large files.

    Another copy would have the same contents, so a retry does not help.
    """


@dataclass(frozen=True, slots=True)
class SnapshotFileInfo:
    """The hash and the size of a snapshot file.

    Attributes:
        sha256: Hash of the file, 64 lower-case hexadecimal digits.
        size: Size of the file in bytes.
    """

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """Limits for the contents of one snapshot, which packing and unpacking enforce.

    Attributes:
        files: Maximum number of files and folders.
        size: Maximum size in bytes, of the archive and of its contents.
    """

    files: int = 100_000
    size: int = 64 * 1024**3


DEFAULT_LIMITS: Final = SnapshotLimits()
_NEITHER: Final = "is neither a file nor a folder; a snapshot holds nothing else"


class _HashingWriter:
    """A writable stream that writes to `file` and adds the written bytes to `hashed`."""

    def __init__(self, file: BinaryIO, hashed: StreamingHash) -> None:
        self._file = file
        self._hashed = hashed

    def write(self, data: bytes) -> int:
        self._hashed.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._hashed.size


def hash_file(file: Path) -> SnapshotFileInfo:
    """Return the hash and size of a file; raise OSError if it cannot be read."""
    with file.open("rb", buffering=0) as opened:
        return _hash(opened)


def pack(
    directory: Path, file: Path, *, limits: SnapshotLimits = DEFAULT_LIMITS, durable: bool = True
) -> SnapshotFileInfo:
    """Write the canonical archive of a directory atomically to a file, and return its hash and size.

    Args:
        directory: Directory to pack.
        file: Path of the archive; an existing file is replaced.
        limits: Limits for the contents of the directory.
        durable: Whether to flush the file to disk before returning. If False, a power failure may damage the file, which the hash
            reveals.

    Raises:
        SnapshotRefusedError: `directory` contains something other than files and folders, or exceeds `limits`.
        OSError: Reading or writing failed; `file` is unchanged.
    """
    return _pack(directory, walk(directory), file, limits, durable=durable)


def pack_entry(
    entry: Path, file: Path, *, name: str = "", limits: SnapshotLimits = DEFAULT_LIMITS, durable: bool = True
) -> SnapshotFileInfo:
    """Write the canonical archive of a directory with one member, a copy of the file or folder `entry`; return its hash and size.

    Args:
        entry: File or folder to pack.
        file: Path of the archive, as for `pack`.
        name: Name of the member; empty: the name of `entry`.
        limits: As for `pack`.
        durable: As for `pack`.

    Raises:
        SnapshotRefusedError: As for `pack`.
        OSError: As for `pack`; also if `entry` does not exist.
    """
    entry = entry.absolute()
    name, content = name or entry.name, entry.resolve(strict=True)
    members = [(name, content)]
    if content.is_dir():
        members += walk(content, name + "/")
    elif not content.is_file():
        raise SnapshotRefusedError(f"{entry} {_NEITHER}")
    return _pack(entry, members, file, limits, durable=durable)


def _pack(
    directory: Path, found: Iterable[tuple[str, Path]], file: Path, limits: SnapshotLimits, *, durable: bool
) -> SnapshotFileInfo:
    members = sorted(found, key=lambda member: os.fsencode(member[0]))
    if len(members) > limits.files:
        raise SnapshotRefusedError(f"{directory} holds {len(members)} files and folders; allowed: {limits.files}")
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".partial")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as opened, StreamingHash() as hashed:
            writer = _HashingWriter(opened, hashed)
            # tarfile uses only write() and tell() of a stream.
            with tarfile.TarFile(
                fileobj=writer,  # type: ignore[arg-type]
                mode="w",
                format=tarfile.PAX_FORMAT,
                encoding="utf-8",
                copybufsize=_BLOCK,
            ) as tar:
                for name, path in members:
                    _add(tar, name, path, limits, writer)
            sha256 = hashed.hexdigest()
            opened.flush()
            if durable:
                os.fsync(opened.fileno())
        os.replace(partial, file)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        _sync_directory(file.parent)
    return SnapshotFileInfo(sha256, hashed.size)


def unpack(
    file: Path,
    directory: Path,
    expected_sha256: str,
    *,
    limits: SnapshotLimits = DEFAULT_LIMITS,
    durable: bool = True,
    verified: bool = False,
) -> None:
    """Verify a snapshot file and unpack it atomically to a new directory.

    Args:
        file: The snapshot file.
        directory: Target, which must not exist; its parent must.
        expected_sha256: Hash of the file, 64 lower-case hexadecimal digits.
        limits: Limits for the contents of the archive.
        durable: Whether to flush the contents to disk before returning. If False, a power failure may damage them.
        verified: Skip the verification, because the caller has just verified the hash.

    Raises:
        SnapshotCorruptError: The bytes do not match the hash or are not an archive.
        SnapshotRefusedError: A member is not allowed, or the archive exceeds `limits`.
        FileExistsError: `directory` exists.
        ValueError: `expected_sha256` is not 64 lower-case hexadecimal digits.
    """
    if _SHA256.fullmatch(expected_sha256) is None:
        raise ValueError(f"expected_sha256 is {expected_sha256!r}; allowed: 64 lower-case hexadecimal digits")
    if os.path.lexists(directory):
        raise FileExistsError(f"{directory} exists; a snapshot is unpacked into a directory of its own")
    with file.open("rb", buffering=0) as opened:
        found = None if verified else _hash(opened)
        if found is not None and found.sha256 != expected_sha256:
            raise SnapshotCorruptError(
                f"{file} ({found.size} bytes) has the hash {found.sha256}; expected {expected_sha256}"
            )
        opened.seek(0)
        partial = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}.", suffix=".partial"))
        try:
            try:
                _extract(opened, partial, limits, durable=durable)
            except DamagedArchive as error:
                raise SnapshotCorruptError(f"{file} is not a snapshot archive: {error}") from error
            except RefusedArchive as error:
                raise SnapshotRefusedError(f"{file} is not a snapshot archive: {error}") from error
            except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
                raise SnapshotRefusedError(f"{file} names a member twice or outside its folder: {error}") from error
            os.rename(partial, directory)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    if durable:
        _sync_directory(directory.parent)


def _hash(opened: FileIO) -> SnapshotFileInfo:
    with StreamingHash() as hashed:
        hashed.drain(opened)
        return SnapshotFileInfo(hashed.hexdigest(), hashed.size)


def walk(directory: Path, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each file and folder below a directory; folders before their contents.

    Args:
        directory: Directory to list.
        prefix: Text to put before each name.

    Yields:
        (`prefix` + path relative to `directory`, path) of a member.

    Raises:
        SnapshotRefusedError: The directory contains something other than files and folders.
    """
    with os.scandir(directory) as entries:
        for entry in entries:
            name, path = prefix + entry.name, Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield name, path
                yield from walk(path, name + "/")
            elif entry.is_file(follow_symlinks=False):
                yield name, path
            else:
                raise SnapshotRefusedError(f"{path} {_NEITHER}")


def header(name: str, size: int | None) -> bytes:
    """Return the tar header of a snapshot member.

    Args:
        name: Name of the member in the archive.
        size: Size of the file in bytes; None: the member is a folder.
    """
    return _member(name, size).tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _member(name: str, size: int | None) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)  # Defaults: no owner, time 0.
    if size is None:
        member.type, member.mode = tarfile.DIRTYPE, 0o755
    else:
        member.size, member.mode = size, 0o644
    return member


def _add(tar: tarfile.TarFile, name: str, path: Path, limits: SnapshotLimits, writer: _HashingWriter) -> None:
    if path.is_dir():
        tar.addfile(_member(name, None))
        return
    with path.open("rb") as content:
        member = _member(name, os.fstat(content.fileno()).st_size)
        if writer.tell() + member.size > limits.size:
            raise SnapshotRefusedError(f"the snapshot is larger than {limits.size} bytes with {name!r}")
        tar.addfile(member, content)


def _extract(archive: FileIO, target: Path, limits: SnapshotLimits, *, durable: bool) -> None:
    for member in members(archive, most=limits.files, limit=limits.size, folders=True):
        path = target / member.name
        if member.is_folder:
            path.mkdir(FOLDER_MODE)
            continue
        # Mode "x" neither follows a link nor replaces a file that an earlier member created.
        with open(path, "xb", buffering=0, opener=private_opener) as out:
            _copy(archive.fileno(), member, out)
            if durable:
                os.fsync(out.fileno())
    if durable:
        for folder, _, _ in os.walk(target):
            _sync_directory(Path(folder))


def _copy(archive: int, member: TarMember, out: BinaryIO | FileIO) -> None:
    """Write the contents of an archive member to a file.

    They are read directly from the archive, at the position of the content.

    Args:
        archive: File descriptor of the archive.
        member: The member.
        out: File to write to.

    Raises:
        SnapshotCorruptError: The archive ends inside the member.
    """
    place, end = member.offset, member.offset + member.size
    while place < end:
        block = os.pread(archive, min(_BLOCK, end - place), place)
        if not block:
            raise SnapshotCorruptError(f"this is not a snapshot archive: it ends inside of {member.name!r}")
        view = memoryview(block)
        while view:
            view = view[out.write(view) :]
        place += len(block)


def check_name(name: str) -> None:
    """Raise SnapshotRefusedError unless a member name is a relative path that stays inside the snapshot."""
    parts = name.split("/")
    if name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise SnapshotRefusedError(f"member name {name!r}; allowed: names that stay inside the snapshot")


def _sync_directory(directory: Path) -> None:
    """Flush the directory entries of `directory` to disk (fsync), so that created and renamed files survive a power failure."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
