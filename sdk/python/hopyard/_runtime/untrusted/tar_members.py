"""Reads tar archives of unknown origin with bounded memory.

A tar header can announce a name of a gigabyte, and a link can point outside of the target folder. An archive may have only plain files
(and folders, if the caller allows them), with relative names that stay inside the archive. The functions block: call them in a thread.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

PIECE_BYTES: Final = 1024 * 1024
"""Maximum number of bytes of a member's content in one piece."""

_MAX_HEADER: Final = 64 * 1024
"""Maximum size of an extended tar header, which holds long names."""

_BLOCK: Final = 512
_EXTENDED: Final = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_KINDS: Final = {
    tarfile.LNKTYPE: "a link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.DIRTYPE: "a folder",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


class RefusedArchive(Exception):
    """Raised for data that exceeds a limit or has a part that is not allowed; the message says what was found and what is allowed."""


class DamagedArchive(RefusedArchive):
    """Raised for data that is not compressed with Zstandard or not a tar archive, or that ends too early."""


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; no bytes at the end."""
        ...


def read_exactly(source: Readable, size: int) -> bytes:
    """Return the next `size` bytes, or as many as there are."""
    found = source.read(size)
    while len(found) < size and (more := source.read(size - len(found))):
        found += more
    return found


@dataclass(frozen=True, slots=True)
class TarMember:
    """A member of a tar archive.

    Attributes:
        name: Its path, relative and without empty, "." and ".." parts, with "/" as separator.
        size: Size of its content in bytes; 0 for a folder.
        executable: The bits of its mode that make a file executable.
        is_folder: Whether it is a folder.
        offset: Position of its content in the archive, in bytes.
        content: Its content; read it before the next member is taken.
    """

    name: str
    size: int
    executable: int
    is_folder: bool
    offset: int
    content: TarContent


class TarContent:
    """The content of one member, to be read once.

    Args:
        archive: The archive, positioned at the content.
        name: Name of the member.
        size: Number of bytes of the content.
    """

    def __init__(self, archive: Readable, name: str, size: int) -> None:
        self._archive = archive
        self._name = name
        self.left = size

    def pieces(self) -> Iterator[bytes]:
        """Yield the content that was not read yet, in pieces of at most `PIECE_BYTES`.

        Raises:
            DamagedArchive: The archive ends before the content does.
        """
        while self.left:
            piece = self._archive.read(min(self.left, PIECE_BYTES))
            if not piece:
                raise DamagedArchive(f"it ends inside of {self._name!r:.200}")
            self.left -= len(piece)
            yield piece


def members(archive: BinaryIO | Readable, *, most: int, limit: int, folders: bool = False) -> Iterator[TarMember]:
    """Yield the members of a tar archive (ustar, pax or GNU format) in order.

    What a caller does not read of a member is skipped: by seeking, if `archive` is a file.

    Args:
        archive: The bytes of the archive, not compressed.
        most: Maximum number of members.
        limit: Maximum number of bytes of all contents together.
        folders: Whether the archive may have folders.

    Raises:
        RefusedArchive: There are more than `most` members or `limit` bytes, or a member is a link, a device or of another kind that is
            not allowed, or its name is absolute or has a part that is empty, "." or "..". The message names the member.
        DamagedArchive: The bytes are not a tar archive, or end too early.
    """
    stream = _Positioned(archive)
    count, total = 0, 0
    extended: dict[str, str] = {}
    while True:
        block = stream.exactly(_BLOCK)
        if len(block) == _BLOCK and not any(block):
            return
        member = _parsed(block)
        if member.type in (*_EXTENDED, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            if member.size > _MAX_HEADER:
                raise RefusedArchive(
                    f"member {member.name!r:.200} has a header of {member.size} bytes, allowed are {_MAX_HEADER}"
                )
            body = stream.exactly(member.size)
            stream.skip(-member.size % _BLOCK)
            if len(body) < member.size:
                raise DamagedArchive("it ends inside of a header")
            if member.type in _EXTENDED:
                extended.update(_records(body))
            elif member.type == tarfile.GNUTYPE_LONGNAME:
                extended["path"] = body.rstrip(b"\0").decode("utf-8", "surrogateescape")
            continue
        name = extended.get("path", member.name)
        size = _size(extended["size"], name) if "size" in extended else member.size
        is_folder = member.type == tarfile.DIRTYPE
        count, total = count + 1, total + size
        if count > most or total > limit:
            raise RefusedArchive(f"it has more than {most} members or {limit} bytes, at {name!r:.200}")
        _check(member, name, extended, folders=folders)
        extended = {}
        content = TarContent(stream, name, 0 if is_folder else size)
        yield TarMember(name.removesuffix("/"), content.left, member.mode & 0o111, is_folder, stream.position, content)
        stream.skip(content.left + (0 if is_folder else -size % _BLOCK), name)


def _check(member: tarfile.TarInfo, name: str, extended: dict[str, str], *, folders: bool) -> None:
    sparse = any(key.startswith("GNU.sparse.") for key in extended)
    plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) or (folders and member.type == tarfile.DIRTYPE)
    if sparse or not plain:
        kind = "a sparse file" if sparse else _KINDS.get(member.type, f"of tar type {member.type!r}")
        allowed = "files and folders" if folders else "plain files"
        raise RefusedArchive(f"member {name!r:.200} is {kind}; allowed: {allowed}")
    parts = (name.removesuffix("/") if member.type == tarfile.DIRTYPE else name).split("/")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise RefusedArchive(f"member name {name!r:.200}; allowed: names that stay inside the archive")


class _Positioned:
    """An archive with the position of its next byte."""

    def __init__(self, archive: BinaryIO | Readable) -> None:
        self._archive = archive
        self.position = 0

    def read(self, size: int, /) -> bytes:
        found = self._archive.read(size)
        self.position += len(found)
        return found

    def exactly(self, size: int) -> bytes:
        return read_exactly(self, size)

    def skip(self, size: int, name: str = "") -> None:
        if size > _BLOCK and isinstance(self._archive, io.RawIOBase | io.BufferedIOBase) and self._archive.seekable():
            self.position = self._archive.seek(self.position + size)
            return
        while size > 0:
            found = self.read(min(size, PIECE_BYTES))
            if not found:
                raise DamagedArchive(f"it ends inside of {name!r:.200}" if name else "it ends inside of a header")
            size -= len(found)


def _parsed(block: bytes) -> tarfile.TarInfo:
    if len(block) < _BLOCK:
        raise DamagedArchive("it ends without the mark of an archive's end")
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.TarError as error:
        raise DamagedArchive(f"it is not a tar archive: {error}") from error
    if member.size < 0:
        raise DamagedArchive(f"member {member.name!r:.200} has a size of {member.size} bytes")
    return member


def _records(body: bytes) -> dict[str, str]:
    """Return the records of an extended header: lines `LENGTH KEY=VALUE`, where LENGTH is that of the line.

    Raises:
        DamagedArchive: The header is not made of such lines.
    """
    found: dict[str, str] = {}
    while body and body[0]:
        digits, _, _ = body[:12].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = body[len(digits) + 1 : length].partition(b"=")
        if not (equals and value.endswith(b"\n") and length <= len(body)):
            raise DamagedArchive("an extended header is damaged")
        found[key.decode("utf-8", "surrogateescape")] = value[:-1].decode("utf-8", "surrogateescape")
        body = body[length:]
    return found


def _size(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise DamagedArchive(f"member {name!r:.200} has the size {text!r:.40}")
    return int(text)
