"""A snapshot as one file: a canonical archive of a directory, named by the SHA-256 of its bytes.

The archive is an uncompressed tar: members sorted by name, contents and sizes, and nothing of the slot that wrote it
(no times, owners or modes). Equal directories thus give equal files and equal hashes, everywhere and for ever. It is
not compressed: trained weights hardly shrink, the bytes of a compressor change with its release, and a hash that
depends on them would make equal snapshots differ. A store that wants to compress can do so below the hash.

Whoever unpacks trusts nothing but the hash: it is checked over the whole file before anything is parsed, and even then
only plain files and folders inside the target directory are made, within limits.
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

from hopyard._runtime.hashing import Hashed

_BLOCK: Final = 1024 * 1024
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class SnapshotFileError(Exception):
    """Root of the errors of this module."""


class SnapshotCorruptError(SnapshotFileError):
    """The bytes are not those that were promised: fetch another copy."""


class SnapshotRefusedError(SnapshotFileError):
    """The contents are not allowed (links, devices, names that lead outside, too much): another copy is no better."""


@dataclass(frozen=True, slots=True)
class SnapshotFileInfo:
    """What names a snapshot file.

    Attributes:
        sha256: of the file's bytes, 64 lower-case hexadecimal digits.
        size: of the file, in bytes.
    """

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """How much `pack` and `unpack` accept.

    Attributes:
        files: the most files and folders.
        size: the most bytes, of the archive and of its contents.
    """

    files: int = 100_000
    size: int = 64 * 1024**3


DEFAULT_LIMITS: Final = SnapshotLimits()
_NEITHER: Final = "is neither a file nor a folder; a snapshot holds nothing else"


class _HashingWriter:
    """Passes writes on and hashes them."""

    def __init__(self, file: BinaryIO, hashed: Hashed) -> None:
        self._file = file
        self._hashed = hashed

    def write(self, data: bytes) -> int:
        self._hashed.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._hashed.size


def hash_file(file: Path) -> SnapshotFileInfo:
    """Return the hash and size of `file`'s bytes."""
    with file.open("rb", buffering=0) as opened:
        return _hash(opened)


def pack(
    directory: Path, file: Path, *, limits: SnapshotLimits = DEFAULT_LIMITS, durable: bool = True
) -> SnapshotFileInfo:
    """Write the canonical archive of `directory` to `file`.

    `file` appears whole (replacing an older one). It is on disk when this returns; with `durable` False nothing waits for the
    disk, so that a computer which loses its power may keep a part of it, which the hash then tells.

    Raises:
        SnapshotRefusedError: `directory` holds something other than files and folders, or more than `limits` allow.
        OSError: reading or writing failed; `file` is then as before.
    """
    return _pack(directory, walk(directory), file, limits, durable=durable)


def pack_entry(
    entry: Path, file: Path, *, name: str = "", limits: SnapshotLimits = DEFAULT_LIMITS, durable: bool = True
) -> SnapshotFileInfo:
    """Write the canonical archive of a directory that holds nothing but `entry`, a file or a folder, under `name`.

    Without one it is the entry's own.

    Raises:
        SnapshotRefusedError: as `pack`.
        OSError: as `pack`; also when there is no such file or folder.
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
        with os.fdopen(handle, "wb") as opened, Hashed() as hashed:
            writer = _HashingWriter(opened, hashed)
            # tarfile needs no more of a stream than write() and tell().
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
    """Verify `file` and unpack it to `directory`, which must not exist yet.

    `directory` appears whole, with its contents on disk, or not at all; with `durable` False nothing waits for the disk, so
    that a computer which loses its power may keep a part of it. `verified`: the caller knows that the hash was found right
    a moment ago, when the file was written.

    Raises:
        SnapshotCorruptError: the bytes of `file` do not have the expected hash, or are no archive.
        SnapshotRefusedError: a member is not allowed, or there is more than `limits` allow.
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
                with tarfile.TarFile(fileobj=opened, mode="r") as tar:
                    _extract(tar, opened, partial, limits, durable=durable)
            except tarfile.TarError as error:
                raise SnapshotCorruptError(f"{file} is not a snapshot archive: {error}") from error
            except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
                raise SnapshotRefusedError(f"{file} names a member twice or outside its folder: {error}") from error
            os.rename(partial, directory)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    if durable:
        _sync_directory(directory.parent)


def _hash(opened: FileIO) -> SnapshotFileInfo:
    with Hashed() as hashed:
        hashed.drain(opened)
        return SnapshotFileInfo(hashed.hexdigest(), hashed.size)


def walk(directory: Path, prefix: str = "") -> Iterator[tuple[str, Path]]:
    """Yield (name inside the archive, path) of everything below `directory`; folders before their contents.

    Raises:
        SnapshotRefusedError: There is something other than files and folders.
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
    """What an archive has before the contents of a file of so many bytes, or for a folder (None)."""
    return _member(name, size).tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _member(name: str, size: int | None) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)  # its defaults: no owner, time 0
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


def _extract(tar: tarfile.TarFile, archive: BinaryIO, target: Path, limits: SnapshotLimits, *, durable: bool) -> None:
    count, size = 0, 0
    for member in tar:
        count, size = count + 1, size + max(member.size, 0)
        if count > limits.files or size > limits.size:
            raise SnapshotRefusedError(f"more than {limits.files} members or {limits.size} bytes at {member.name!r}")
        path = target / _safe_name(member)
        if member.type == tarfile.DIRTYPE:
            path.mkdir(mode=0o755)
            continue
        # "x" never follows or replaces what an earlier member made.
        with path.open("xb", buffering=0) as out:
            _copy(archive.fileno(), member, out)
            if durable:
                os.fsync(out.fileno())
    if durable:
        for folder, _, _ in os.walk(target):
            _sync_directory(Path(folder))


def _copy(archive: int, member: tarfile.TarInfo, out: BinaryIO | FileIO) -> None:
    """Write a member's bytes, which lie together in the archive: several times faster than through tarfile's reader."""
    place, end = member.offset_data, member.offset_data + member.size
    while place < end:
        block = os.pread(archive, min(_BLOCK, end - place), place)
        if not block:
            raise SnapshotCorruptError(f"this is not a snapshot archive: it ends inside of {member.name!r}")
        view = memoryview(block)
        while view:
            view = view[out.write(view) :]
        place += len(block)


def check_name(name: str) -> None:
    """Check that a member's name leads nowhere else.

    Raises:
        SnapshotRefusedError: It does.
    """
    parts = name.split("/")
    if name.startswith("/") or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise SnapshotRefusedError(f"member name {name!r}; allowed: names that stay inside the snapshot")


def _safe_name(member: tarfile.TarInfo) -> str:
    check_name(member.name)
    plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)
    if not plain or member.issparse():
        raise SnapshotRefusedError(f"member {member.name!r} is of tar type {member.type!r}; allowed: files and folders")
    return member.name


def _sync_directory(directory: Path) -> None:
    """Put the names in `directory` on disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
