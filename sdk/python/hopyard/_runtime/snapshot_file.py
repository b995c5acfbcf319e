"""A snapshot as one file: a canonical archive of a directory, named by the SHA-256 of its bytes.

The archive is an uncompressed tar with names, contents and sizes of the members, sorted by name, and without times,
owners and modes. Equal directories therefore always give equal files and hashes. It is not compressed, because trained
weights compress poorly and a compressor's output changes between releases, which would give equal snapshots different
hashes. A store may compress it internally.

Unpacking trusts only the hash: the hash of the whole file is verified before anything is parsed, and only regular files
and folders inside the target directory are created, within limits.
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
    """Base class of the errors of this module."""


class SnapshotCorruptError(SnapshotFileError):
    """The bytes do not match the hash: fetch another copy."""


class SnapshotRefusedError(SnapshotFileError):
    """The contents are not allowed (links, devices, names outside the directory, too much): other copies have the same fault."""


@dataclass(frozen=True, slots=True)
class SnapshotFileInfo:
    """The identity of a snapshot file.

    Attributes:
        sha256: Hash of the file, 64 lower-case hexadecimal digits.
        size: Size of the file in bytes.
    """

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """The limits of `pack` and `unpack`.

    Attributes:
        files: Maximum number of files and folders.
        size: Maximum size in bytes, of the archive and of its contents.
    """

    files: int = 100_000
    size: int = 64 * 1024**3


DEFAULT_LIMITS: Final = SnapshotLimits()
_NEITHER: Final = "is neither a file nor a folder; a snapshot holds nothing else"


class _HashingWriter:
    """Writes to a file and hashes what is written."""

    def __init__(self, file: BinaryIO, hashed: Hashed) -> None:
        self._file = file
        self._hashed = hashed

    def write(self, data: bytes) -> int:
        self._hashed.update(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._hashed.size


def hash_file(file: Path) -> SnapshotFileInfo:
    """Returns the hash and size of a file."""
    with file.open("rb", buffering=0) as opened:
        return _hash(opened)


def pack(
    directory: Path, file: Path, *, limits: SnapshotLimits = DEFAULT_LIMITS, durable: bool = True
) -> SnapshotFileInfo:
    """Writes the canonical archive of `directory` atomically to `file`.

    With `durable`, the file is flushed to disk on return. Without, a power failure may damage it, which the hash
    reveals.

    Raises:
        SnapshotRefusedError: `directory` contains something other than files and folders, or exceeds `limits`.
        OSError: Reading or writing failed; `file` is unchanged.
    """
    return _pack(directory, walk(directory), file, limits, durable=durable)


def pack_entry(
    entry: Path, file: Path, *, name: str = "", limits: SnapshotLimits = DEFAULT_LIMITS, durable: bool = True
) -> SnapshotFileInfo:
    """Writes the canonical archive of a directory that contains only `entry`, a file or a folder, under `name`.

    An empty `name` means the name of the entry. `limits` and `durable` are as for `pack`.

    Raises:
        SnapshotRefusedError: As `pack`.
        OSError: As `pack`; also if the entry does not exist.
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
    """Verifies `file` and unpacks it atomically to `directory`, which must not exist yet.

    With `durable`, the contents are flushed to disk. Without, a power failure may damage them. With `verified`, the
    hash is not checked, because the caller has just checked it.

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
    """Yields (name in the archive, path) of each file and folder below `directory`; folders before their contents.

    Names begin with `prefix`.

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
    """Returns the archive header of a file of `size` bytes, or of a folder (None)."""
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
        # Mode "x" neither follows a link nor replaces a file that an earlier member created.
        with path.open("xb", buffering=0) as out:
            _copy(archive.fileno(), member, out)
            if durable:
                os.fsync(out.fileno())
    if durable:
        for folder, _, _ in os.walk(target):
            _sync_directory(Path(folder))


def _copy(archive: int, member: tarfile.TarInfo, out: BinaryIO | FileIO) -> None:
    """Writes the contents of a member to `out`, read directly from the archive, which is several times faster than tarfile."""
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
    """Checks that the name of a member stays inside the snapshot.

    Raises:
        SnapshotRefusedError: It does not.
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
    """Flushes the names in `directory` to disk (fsync)."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
