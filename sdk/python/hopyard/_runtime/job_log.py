"""What the node agent, the process of a run and the experiment file share about the log of a job.

The process of a program in log mode reads metrics from the log. It records how far it has read, because the agent cuts out only what
was read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

LOG_POSITION: Final = "log.position"
"""Name of the file in the run's temporary folder."""

SMALLEST_LOG: Final = 64 * 1024
"""Smallest limit of a log in bytes."""

_STEP_BYTES: Final = 16 * 1024


class LogPosition:
    """Writes the offset up to which a log was read to a file, at most once for each 16 KiB.

    Args:
        file: The file, in a folder that exists.
        start: Offset at which reading starts; it is written at once.

    Raises:
        OSError: The file cannot be written.
    """

    def __init__(self, file: Path, start: int) -> None:
        self._file = file
        self._written = start
        self._write(start)

    def advance(self, offset: int) -> None:
        """Record that the log was read up to `offset`.

        Raises:
            OSError: The file cannot be written.
        """
        if offset - self._written >= _STEP_BYTES:
            self._write(offset)

    def _write(self, offset: int) -> None:
        partial = self._file.with_name(f".{self._file.name}.partial")
        partial.write_text(str(offset), encoding="ascii")
        partial.replace(self._file)
        self._written = offset


def position_of(file: Path) -> int:
    """Return the offset in a file that `LogPosition` wrote.

    Raises:
        OSError: The file does not exist, or cannot be read.
    """
    return int(file.read_text(encoding="ascii"))
