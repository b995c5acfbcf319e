"""Cuts a part out of the middle of a log to which a process still appends, and finds the cut again when the log is read.

The cut part becomes a hole in the file: it takes no space, and all other bytes keep their offsets. A second file beside the log
names the part and contains the line that is shown instead of it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopyard._common.formatting import size as size_text
from hopyard._runtime.holes import punch_hole
from hopyard._runtime.job_log import SMALLEST_LOG

_HEAD_PART: Final = 8
_TAIL_PART: Final = 2
_SMALLEST_CUT: Final = 4096
_LONGEST_LINE: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Cut:
    """The part that was cut out of a log.

    Attributes:
        begin: Offset of its first byte.
        end: Offset after its last byte.
        line: The line to show instead of it, with line breaks.
    """

    begin: int
    end: int
    line: str = ""

    @property
    def length(self) -> int:
        """The number of bytes that were cut out."""
        return self.end - self.begin


def plan_cut(size: int, earlier: Cut | None, limit: int, read: int | None = None) -> Cut | None:
    """Return what to cut out of a log, including what was cut out before; None: nothing is to be cut.

    That is so if the log keeps at most `limit` bytes, or if less than `_SMALLEST_CUT` bytes more could be cut. After a cut, an eighth
    of the limit is kept at the beginning of the log and half of it at the end, so that not every later write needs another cut.

    Args:
        size: Size of the log in bytes, including the bytes that were cut out.
        earlier: What was cut out before; None: nothing.
        limit: Maximum number of bytes that the log may keep; a smaller value than `SMALLEST_LOG` is replaced by it.
        read: Offset up to which the process that reads metrics from the log has read it; bytes from there on are kept, even if they
            exceed the limit. None: no process does.
    """
    limit = max(limit, SMALLEST_LOG)
    if size - (earlier.length if earlier is not None else 0) <= limit:
        return None
    begin, end = limit // _HEAD_PART, size - limit // _TAIL_PART
    if read is not None:
        end = min(end, read)
    if earlier is not None:
        begin, end = min(begin, earlier.begin), max(end, earlier.end)
    new = (end - begin) - (earlier.length if earlier is not None else 0)
    return Cut(begin, end) if new >= _SMALLEST_CUT else None


def cut_of(log: Path) -> Cut | None:
    """Return what was cut out of a log; None: nothing, or the file that records it is damaged."""
    try:
        known = json.loads(_note(log).read_text(encoding="utf-8"))
        cut = Cut(int(known["begin"]), int(known["end"]), str(known["line"]))
        size = log.stat().st_size
    # It is written by renaming, so only something else can have damaged it.
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return cut if 0 <= cut.begin <= cut.end <= size else None


def kept_bytes(log: Path) -> int:
    """Return the number of bytes of a log that are kept; 0 if it does not exist or cannot be examined."""
    try:
        size = log.stat().st_size
    except OSError:
        return 0
    cut = cut_of(log)
    return size - cut.length if cut is not None else size


def keep_within(log: Path, limit: int, *, setting: str, read: int | None = None) -> bool:
    """Cut the middle out of a log if it keeps more bytes than its limit.

    Processes may append to the log and read it at the same time. On a file system without holes, output that a process
    writes during the cut can be lost.

    Args:
        log: The log; it need not exist.
        limit: Maximum number of bytes that it keeps; a smaller value than `SMALLEST_LOG` is replaced by it.
        setting: Name and value of the option with this limit, for the line that replaces the cut part.
        read: Offset up to which the process that reads metrics from the log has read it; bytes from there on are not cut. None: no
            process does.

    Returns:
        Whether something was cut out.

    Raises:
        OSError: The log cannot be changed.
    """
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return False
    if size <= limit:
        return False
    planned = plan_cut(size, earlier := cut_of(log), limit, read)
    if planned is None:
        return False
    file = os.open(log, os.O_RDWR | os.O_CLOEXEC)
    try:
        begin = planned.begin if earlier is not None and planned.begin == earlier.begin else _line_end(file, planned)
        end = planned.end
        if earlier is None or end > earlier.end:
            end = _line_begin(file, end, size if read is None else min(size, read))
        line = f"\n[hopyard: {size_text(end - begin)} of output were cut out here: {setting}]\n"
        cut = Cut(begin, end, line)
        _write_note(log, cut)
        if not punch_hole(file, begin, end):
            _rewrite(file, cut)
        os.pwrite(file, line.encode(), begin)  # For people who open the file itself.
    finally:
        os.close(file)
    return True


def _line_end(file: int, planned: Cut) -> int:
    """Return the offset after the last line break before the planned cut, so that the first part ends with a complete line.

    If the last `_LONGEST_LINE` bytes before it have none, the result is the begin of the planned cut.
    """
    low = max(0, planned.begin - _LONGEST_LINE)
    found = os.pread(file, planned.begin - low, low).rfind(b"\n")
    return low + found + 1 if found >= 0 else planned.begin


def _line_begin(file: int, offset: int, most: int) -> int:
    """Return the offset after the first line break at or after `offset`, at most `most`.

    If the next `_LONGEST_LINE` bytes, or those up to `most`, have no line break, the result is `offset`.
    """
    found = os.pread(file, min(_LONGEST_LINE, max(0, most - offset)), offset).find(b"\n")
    return offset + found + 1 if found >= 0 else offset


def _rewrite(file: int, cut: Cut) -> None:
    """Make the cut part a hole by truncating the file and writing the rest again at its offsets."""
    size = os.fstat(file).st_size
    rest = os.pread(file, size - cut.end, cut.end)
    os.ftruncate(file, cut.begin)
    os.ftruncate(file, size)
    os.pwrite(file, rest, cut.end)


def _write_note(log: Path, cut: Cut) -> None:
    note = _note(log)
    partial = note.with_name(f".{note.name}.partial")
    partial.write_text(json.dumps({"begin": cut.begin, "end": cut.end, "line": cut.line}), encoding="utf-8")
    partial.replace(note)


def _note(log: Path) -> Path:
    return log.with_name(f"{log.name}.cut")
