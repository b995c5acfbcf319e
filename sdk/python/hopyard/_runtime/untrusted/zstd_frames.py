"""Decompresses Zstandard data of unknown origin with bounded memory: a few kilobytes can expand to gigabytes.

Every reader of such bytes uses this module, and `tar_members` for tar archives. Its functions block: call them in a thread.

The limits:

* A frame may need a window of `MAX_WINDOW_BYTES`. The Zstandard program stays below it except with `--ultra` and `--long`.
* The plain data may have as many bytes as the caller allows. A frame that states a larger size is refused before it is decompressed.
  The statement is not trusted: the bytes are counted, too.
* Above `FREE_BYTES`, the plain data may be at most `MAX_RATIO` times as long as the compressed data read so far.
"""

from __future__ import annotations

from typing import Final

import zstandard

from hopyard._runtime.untrusted.tar_members import PIECE_BYTES, DamagedArchive, Readable, RefusedArchive, read_exactly

MAX_WINDOW_BYTES: Final = 2**25
"""Maximum window of a Zstandard frame: the decompressor holds it in memory."""

MAX_RATIO: Final = 200
"""Maximum ratio of plain to compressed bytes."""

FREE_BYTES: Final = 16 * 1024 * 1024
"""Number of plain bytes up to which every ratio is allowed."""

_FRAME_HEADER: Final = 18
_FED: Final = 64


class _Count:
    """Counts plain and compressed bytes, and raises RefusedArchive when a limit is exceeded.

    Args:
        limit: Maximum number of plain bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.packed = 0
        self.plain = 0

    def check_header(self, header: bytes) -> None:
        """Check what the header of a frame states.

        Args:
            header: The first bytes of the frame, at least 18 of them unless the frame is shorter.
        """
        try:
            stated = zstandard.get_frame_parameters(header)
        except zstandard.ZstdError as error:
            raise DamagedArchive(f"the data is not compressed with Zstandard: {error}") from error
        if stated.window_size > MAX_WINDOW_BYTES:
            raise RefusedArchive(
                f"its window is {_mebibytes(stated.window_size)}, allowed are {_mebibytes(MAX_WINDOW_BYTES)}; compress it "
                "without --ultra and --long"
            )
        if stated.content_size != zstandard.CONTENTSIZE_UNKNOWN and stated.content_size > self._limit:
            raise RefusedArchive(
                f"it states {_mebibytes(stated.content_size)} of content, allowed are {_mebibytes(self._limit)}"
            )

    def add(self, plain: int) -> None:
        """Count decompressed bytes."""
        self.plain += plain
        if self.plain > self._limit:
            raise RefusedArchive(f"its content has more than the allowed {_mebibytes(self._limit)}")
        if self.plain > FREE_BYTES and self.plain > MAX_RATIO * self.packed:
            raise RefusedArchive(
                f"its content is more than {MAX_RATIO} times as long as the compressed data ({self.plain} bytes from "
                f"{self.packed})"
            )


class _Source:
    """The compressed bytes, counted when the decompressor reads them.

    Args:
        head: The bytes that were read before.
        rest: The bytes that follow.
        count: Counts them.
    """

    def __init__(self, head: bytes, rest: Readable, count: _Count) -> None:
        self._head = head
        self._rest = rest
        self._count = count

    def read(self, size: int) -> bytes:
        found = self._head or self._rest.read(size)
        self._head = b""
        self._count.packed += len(found)
        return found


class DecompressedStream:
    """The content of one Zstandard frame, decompressed piece by piece as it is read.

    Args:
        packed: The compressed bytes.
        limit: Maximum number of bytes of the content.

    Raises:
        RefusedArchive: The header of the frame exceeds a limit.
        DamagedArchive: The data does not begin with a Zstandard frame.
    """

    def __init__(self, packed: Readable, limit: int) -> None:
        self._count = _Count(limit)
        head = read_exactly(packed, _FRAME_HEADER)
        self._count.check_header(head)
        self._reader = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).stream_reader(
            _Source(head, packed, self._count)  # type: ignore[arg-type]
        )

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, of which there may be at most `PIECE_BYTES`; no bytes at the end of the data.

        Data that is cut off ends like complete data: the reader of the content must detect it.

        Raises:
            RefusedArchive: The content exceeds a limit.
            DamagedArchive: The data is damaged.
        """
        try:
            found = self._reader.read(min(size, PIECE_BYTES))
        except zstandard.ZstdError as error:
            raise DamagedArchive(f"the compressed data is damaged: {error}") from error
        self._count.add(len(found))
        return found


class FedDecompressor:
    """Decompresses one Zstandard frame that arrives in chunks.

    Args:
        limit: Maximum number of bytes of the content.
    """

    def __init__(self, limit: int) -> None:
        self._count = _Count(limit)
        self._zstd = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
        self._begun = False
        self._waiting = b""
        self._place = 0

    @property
    def complete(self) -> bool:
        """Whether the frame has ended, and all its content was returned."""
        return bool(self._zstd.eof)

    def feed(self, chunk: bytes) -> None:
        """Add the next compressed bytes."""
        self._waiting = self._waiting[self._place :] + chunk
        self._place = 0

    def read(self) -> bytes:
        """Return the next bytes of the content, about 2 MiB at most; no bytes: more compressed data is needed, or the frame has ended.

        Raises:
            RefusedArchive: The content exceeds a limit.
            DamagedArchive: The data is damaged.
        """
        if not self._begun and not self._begin():
            return b""
        found = b""
        # A block of 4 bytes can expand to 128 KiB, so a piece of 64 bytes expands to about 2 MiB.
        while not found and self._place < len(self._waiting) and not self._zstd.eof:
            piece = self._waiting[self._place : self._place + _FED]
            self._place += len(piece)
            self._count.packed += len(piece)
            try:
                found = self._zstd.decompress(piece)
            except zstandard.ZstdError as error:
                raise DamagedArchive(f"the compressed data is damaged: {error}") from error
            self._count.add(len(found))
        return found

    def _begin(self) -> bool:
        """Check the header of the frame. Return False if it has not arrived yet."""
        head = self._waiting[:_FRAME_HEADER]
        if not zstandard.FRAME_HEADER.startswith(head[:4]):
            raise DamagedArchive("the data is not compressed with Zstandard")
        try:
            self._count.check_header(head)
        except DamagedArchive:
            if len(head) == _FRAME_HEADER:
                raise
            return False
        self._begun = True
        return True


def _mebibytes(size: int) -> str:
    return f"{size / 2**20:.0f} MiB"
