"""Finds tracebacks in the logs of services."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TRACEBACK: Final = "Traceback (most recent call last)"
"""The first line of a traceback."""

_MOST_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class LogTracebacks:
    """The tracebacks of a log.

    Attributes:
        log: The log file.
        count: Number of tracebacks, at least 1.
        last: The line with the error of the last one.
    """

    log: Path
    count: int
    last: str

    def __str__(self) -> str:
        """Return a message with the name of the log."""
        return f"{self.log.name} has {self.count} tracebacks; the last one ends with: {self.last}"


def tracebacks(logs: Iterable[Path]) -> list[LogTracebacks]:
    """Return the tracebacks of each log that has some, in the order of the paths."""
    found = []
    for log in sorted(logs):
        text = log.read_text(errors="replace")
        if count := text.count(TRACEBACK):
            lines = text.rpartition(TRACEBACK)[2].splitlines()[1:]
            error = next((line for line in lines if line and not line.startswith(" ")), "")
            found.append(LogTracebacks(log, count, error[:_MOST_CHARACTERS]))
    return found
