"""Reads the log files of jobs and runners, to which other processes append."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from hopyard_nodeagent.runs.logs.cut import cut_of

CHUNK_BYTES: Final = 64 * 1024
_POLL_SECONDS: Final = 0.2
_TAIL_BYTES: Final = 4096
_TAIL_LINES: Final = 12


def size(path: Path) -> int:
    """Return the size of a log in bytes; 0 if it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def last_lines(path: Path, since: int = 0) -> str:
    """Return the last lines of a log file, at most 12, without the bytes before offset `since`; empty: there are none."""
    end = size(path)
    begin = max(since, end - _TAIL_BYTES)
    if begin >= end:
        return ""
    with path.open("rb") as file:
        file.seek(begin)
        text = file.read(end - begin).decode(errors="replace")
    return "\n".join(text.rstrip().splitlines()[-_TAIL_LINES:])


async def stream(path: Path, offset: int, follow: Callable[[], bool]) -> AsyncIterator[tuple[int, bytes]]:
    """Yield chunks of a log file, each with its byte offset.

    For a part that was cut out of the log, one line that says so is yielded. Its offset is the end of the part minus the length of the
    line, so that the offset of the next chunk follows without a gap.

    Args:
        path: The log file; it need not exist yet.
        offset: Offset of the first byte; a negative number counts from the current end of the file.
        follow: Returns whether to wait for more bytes at the end of the file. Once it has returned False, the bytes up to the end are
            yielded, and the iteration ends.
    """
    position = max(0, size(path) + offset) if offset < 0 else offset
    while True:
        more = follow()
        while (found := await asyncio.to_thread(_read, path, position))[1]:
            position, data = found
            yield position, data
            position += len(data)
        if not more:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _read(path: Path, position: int) -> tuple[int, bytes]:
    """Return (offset, bytes): the next bytes of a log at or after `position`, with their offset; no bytes: the log ends there."""
    while True:
        cut = cut_of(path)
        if cut is not None and cut.begin <= position < cut.end:
            line = cut.line.encode()
            return cut.end - len(line), line
        if position >= size(path):  # Also a position that no file can have, to which seeking is an error.
            return position, b""
        length = CHUNK_BYTES if cut is None or position >= cut.end else min(CHUNK_BYTES, cut.begin - position)
        try:
            with path.open("rb") as file:
                file.seek(position)
                data = file.read(length)
        except FileNotFoundError:
            return position, b""
        # If more was cut out meanwhile, the bytes may be zeros.
        if cut_of(path) == cut:
            return position, data
