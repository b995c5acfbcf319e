"""The end of a job's log, for the log screen of the live view."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Sequence
from typing import Final

from rich.cells import chop_cells

from hopyard._common.formatting import printable
from hopyard.client.types import LogChunk

MOST_LINES: Final = 5000
"""Maximum number of lines that are kept. Older lines are dropped; `hopyard logs` prints all."""

_LONGEST_LINE: Final = 4000
"""Maximum number of characters of a line that are kept."""

_STYLE_SEQUENCE: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class LogTail:
    """The last lines of a job's output, and which of them are shown.

    Args:
        job: Id of the job.

    Attributes:
        job: Id of the job.
        message: Shown in place of the lines while there are none, or below them: why there is no output.
        above: Number of lines between the last shown line and the newest line; 0: the view follows the output.
    """

    def __init__(self, job: str) -> None:
        self.job = job
        self.message = "reading the log..."
        self.above = 0
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._open = ""
        self._node: str | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, chunk: LogChunk) -> None:
        """Append a chunk of the log. A line says on which node the following output was written, if there is more than one."""
        self.message = ""
        if self._node is not None and chunk.node != self._node:
            self._end_line()
            self._append(f"--- on {chunk.node}")
        self._node = chunk.node
        *whole, self._open = (self._open + self._decoder.decode(chunk.data)).split("\n")
        for line in whole:
            self._append(line)
        self._open = self._open[-_LONGEST_LINE:]

    def lines(self) -> Sequence[str]:
        """Return all kept lines as printable text, with the last one although its end is not written yet."""
        return [*self._lines, *([_shown(self._open)] if self._open else [])]

    def window(self, width: int, height: int) -> list[str]:
        """Return the rows to show on a screen of `width` characters and `height` rows, at most `height`.

        They are the newest rows, or those that `scroll` selected. A line that is longer than `width` has several rows.
        """
        lines = self.lines()
        self.above = max(0, min(self.above, len(lines) - 1))
        rows: list[str] = []
        for line in reversed(lines[: len(lines) - self.above]):
            rows[:0] = chop_cells(line, width) or [""]
            if len(rows) >= height:
                return rows[len(rows) - height :]
        while self.above and len(rows) < height:  # the beginning of the log
            rows += chop_cells(lines[len(lines) - self.above], width) or [""]
            self.above -= 1
        return rows[:height]

    def scroll(self, lines: int) -> None:
        """Show `lines` older lines; a negative number shows newer ones. At the newest line the view follows the output again."""
        self.above = max(0, self.above + lines)

    def _append(self, line: str) -> None:
        self._lines.append(_shown(line))
        # Lines that are read keep their place on the screen while new ones arrive.
        self.above += bool(self.above)

    def _end_line(self) -> None:
        if self._open:
            self._append(self._open)
            self._open = ""


def _shown(line: str) -> str:
    """Return a line of a log as a terminal would leave it: without colours, and of a progress bar only its last state."""
    text = _STYLE_SEQUENCE.sub("", line[:_LONGEST_LINE]).rstrip("\r\n ")
    return printable(text.rpartition("\r")[2]).expandtabs(8)
