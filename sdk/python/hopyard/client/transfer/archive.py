"""The export file of an experiment (docs/exporting.md): a zip archive of compressed members, with a manifest of their hashes.

A member is a named sequence of bytes, such as "journal.jsonl". The manifest is the last member, and is read first through the
directory of the zip. A reader must verify all members before it uses any.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import zstandard

from hopyard.errors import AlreadyExists, DataLoss, InvalidInput, NotFound

FORMAT: Final = "hopyard experiment"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
SUFFIX: Final = ".hopyard"

_CHUNK: Final = 1024 * 1024
_MAX_MANIFEST_BYTES: Final = 256 * 1024 * 1024
_TIME: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """The entry of a member in the manifest of an archive.

    Attributes:
        sha256: SHA-256 of the compressed bytes in the archive.
        packed_bytes: Number of compressed bytes.
        size_bytes: Number of uncompressed bytes.
    """

    sha256: str
    packed_bytes: int
    size_bytes: int


class ArchiveWriter:
    """Writes an archive atomically: the file appears under its name after `finish` and fsync. After an error, no file appears.

        with ArchiveWriter(path) as archive:
            archive.add("journal.jsonl", chunks)
            archive.finish({...})

    Args:
        path: The file to create.

    Raises:
        AlreadyExists: The file already exists.
    """

    def __init__(self, path: Path) -> None:
        if path.exists():
            raise AlreadyExists(f"{path} exists already; choose another name (-o FILE)")
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.part")
        self._file = self._partial.open("xb")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        self._members: dict[str, ArchiveMember] = {}
        self._finished = False

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """If `finish` was called and no error occurred, flush the file and rename it to its final name; else delete it."""
        try:
            if self._finished and error is None:
                self._zip.close()
                self._file.flush()
                os.fsync(self._file.fileno())
                os.replace(self._partial, self._path)
        finally:
            # An error while closing must not hide the original one.
            with suppress(OSError, ValueError):
                self._zip.close()
            with suppress(OSError):
                self._file.close()
            self._partial.unlink(missing_ok=True)

    @contextmanager
    def member(self, name: str) -> Iterator[MemberWriter]:
        """Return a context manager that opens the member `name` for writing. The bytes written to it are compressed.

        Only one member can be open at a time, and each name must be used once.
        """
        info = zipfile.ZipInfo(f"{name}.zst", _TIME)
        with self._zip.open(info, "w", force_zip64=True) as raw:
            writer = MemberWriter(raw)
            yield writer
            self._members[name] = writer.close()

    def add(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write the member `name`, whose uncompressed bytes are the concatenation of `chunks`."""
        with self.member(name) as writer:
            for chunk in chunks:
                writer.write(chunk)

    def finish(self, about: Mapping[str, Any]) -> None:
        """Write the manifest, which consists of the fields `about` and the list of members. No member can be added after it."""
        members = {
            name: {field: getattr(one, field) for field in ArchiveMember.__slots__}
            for name, one in self._members.items()
        }
        manifest = {"format": FORMAT, "version": VERSION, **about, "members": members}
        text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False)
        self._zip.writestr(zipfile.ZipInfo(MANIFEST, _TIME), text)
        self._finished = True


class MemberWriter:
    """Compresses the bytes that are written to one member of an archive, and computes their hash and sizes.

    `ArchiveWriter.member` creates it.
    """

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._zstd = zstandard.ZstdCompressor(level=3).compressobj()
        self._hash = hashlib.sha256()
        self._packed = 0
        self._size = 0

    def write(self, data: bytes) -> None:
        """Compress the bytes `data` and append them to the member."""
        self._size += len(data)
        self._put(self._zstd.compress(data))

    def close(self) -> ArchiveMember:
        """Flush the compressor, and return the manifest entry of the member."""
        self._put(self._zstd.flush())
        return ArchiveMember(self._hash.hexdigest(), self._packed, self._size)

    def _put(self, packed: bytes) -> None:
        self._hash.update(packed)
        self._packed += len(packed)
        self._raw.write(packed)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of an archive.

    Attributes:
        about: All fields of the manifest as read from JSON, including "format", "version" and "members".
        members: The entries of the members by member name.
    """

    about: Mapping[str, Any]
    members: Mapping[str, ArchiveMember] = field(default_factory=dict)


class ArchiveReader:
    """Reads an archive of unknown origin, which may be truncated, modified, or another kind of file. Use it as a context manager.

    Args:
        path: The file.

    Attributes:
        manifest: The manifest of the archive.

    Raises:
        NotFound: There is no such file.
        InvalidInput: The file is a zip but not an export, or has another format version.
        DataLoss: The file is not a complete zip, or its manifest is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file: BinaryIO = path.open("rb")
        except FileNotFoundError:
            raise NotFound(f"{path}: there is no such file") from None
        try:
            self._zip = zipfile.ZipFile(self._file)
            self.manifest = self._read_manifest()
        except BaseException as error:
            self._file.close()
            if isinstance(error, zipfile.BadZipFile | EOFError):
                raise DataLoss(
                    f"{path}: it is not a complete file from hopyard export ({error}); copy it again"
                ) from error
            raise

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self._zip.close()
        self._file.close()

    def verify(self) -> None:
        """Verify the hash and the size of every member.

        Raises:
            DataLoss: A member is missing, or does not match the manifest.
        """
        for name, member in self.manifest.members.items():
            digest, size = hashlib.sha256(), 0
            for chunk in self.packed(name):
                digest.update(chunk)
                size += len(chunk)
            if digest.hexdigest() != member.sha256 or size != member.packed_bytes:
                raise self._damaged(f"member {name} is not what the manifest promises")

    def packed(self, name: str) -> Iterator[bytes]:
        """Yield the compressed bytes of a member in chunks.

        Raises:
            DataLoss: The member is missing or damaged.
        """
        try:
            with self._zip.open(f"{name}.zst") as raw:
                while chunk := raw.read(_CHUNK):
                    yield chunk
        except (KeyError, zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
            raise self._damaged(f"member {name} cannot be read: {error}") from error

    def unpacked(self, name: str) -> Iterator[bytes]:
        """Yield the uncompressed bytes of a member in chunks, at most as many as the manifest states.

        Raises:
            DataLoss: The member is missing or damaged, or its size differs from that in the manifest.
        """
        left = self.manifest.members[name].size_bytes
        zstd = zstandard.ZstdDecompressor(max_window_size=2**27)
        try:
            with self._zip.open(f"{name}.zst") as raw, zstd.stream_reader(raw) as reader:
                while chunk := reader.read(_CHUNK):
                    left -= len(chunk)
                    if left < 0:
                        break
                    yield chunk
        except (KeyError, zipfile.BadZipFile, EOFError, zstandard.ZstdError, RuntimeError) as error:
            raise self._damaged(f"member {name} cannot be read: {error}") from error
        if left:
            raise self._damaged(f"member {name} has not the size that the manifest promises")

    def _read_manifest(self) -> Manifest:
        try:
            info = self._zip.getinfo(MANIFEST)
        except KeyError:
            raise InvalidInput(
                f"{self._path}: it is a zip file, but not an exported experiment: it has no {MANIFEST}"
            ) from None
        if info.file_size > _MAX_MANIFEST_BYTES:
            raise InvalidInput(
                f"{self._path}: its {MANIFEST} has {info.file_size} bytes, allowed are {_MAX_MANIFEST_BYTES}"
            )
        try:
            about = json.loads(self._zip.read(info))
        except (ValueError, RuntimeError, NotImplementedError) as error:
            raise self._damaged(f"{MANIFEST}: {error}") from error
        if not isinstance(about, dict) or about.get("format") != FORMAT:
            raise InvalidInput(f"{self._path}: it is a zip file, but not one that hopyard export wrote")
        if about.get("version") != VERSION:
            raise InvalidInput(
                f"{self._path}: its format is version {about.get('version')}, written by Hopyard {about.get('hopyard')}; "
                f"this Hopyard reads version {VERSION}: use a newer one"
            )
        try:
            members = {str(name): _member(one) for name, one in about["members"].items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._damaged(f"{MANIFEST}: members: {type(error).__name__}: {error}") from error
        return Manifest(about, members)

    def _damaged(self, what: str) -> DataLoss:
        return DataLoss(f"{self._path}: it is truncated or was altered: {what}; copy or export it again")


def _member(raw: Mapping[str, Any]) -> ArchiveMember:
    return ArchiveMember(str(raw["sha256"]), int(raw["packed_bytes"]), int(raw["size_bytes"]))
