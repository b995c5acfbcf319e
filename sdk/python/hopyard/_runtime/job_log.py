"""What the node agent, the process of a run and the experiment file share about the log of a job.

The runner of a log program reads metrics from the log. It writes the offset up to which it has read to a file, because the node agent,
which removes parts of a log above its limit, removes only parts before this offset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopyard._common.bounded_json import read_count, read_json

LOG_POSITION: Final = "log.position"
"""Name of the file in the run's temporary folder."""

SMALLEST_LOG: Final = 64 * 1024
"""Smallest limit of a log in bytes."""

_STEP_BYTES: Final = 16 * 1024


LOGS: Final = "logs"
"""Kind of the scheduler's questions to a node about the logs of experiments."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """A question to a node about the logs of experiments. An experiment is identified by the id of its group.

    Attributes:
        measure: Experiments whose logs the node counts: their number and bytes.
        delete: Experiments whose logs the node counts and then deletes.
    """

    measure: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the question as JSON text."""
        return json.dumps({"measure": self.measure, "delete": self.delete}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> LogQuery:
        """Return the question in a JSON text.

        Raises:
            ValueError: The text is not such a question.
        """
        found = _object(text)
        return cls(_texts(found.get("measure")), _texts(found.get("delete")))


def log_answer(sizes: Mapping[str, tuple[int, int]]) -> str:
    """Return the answer to a `LogQuery` as JSON text: the number of logs and their bytes, by experiment."""
    return json.dumps(sizes, separators=(",", ":"))


def logs_answered(text: str) -> dict[str, tuple[int, int]]:
    """Return the number of logs and their bytes, by experiment, in an answer to a `LogQuery`.

    Raises:
        ValueError: The text is not such an answer.
    """
    try:
        return {
            name: (read_count(count, "logs"), read_count(size, "bytes of logs"))
            for name, (count, size) in _object(text).items()
        }
    except TypeError as error:
        raise ValueError(f"found {text!r:.80}, needed is the number and size of logs by experiment") from error


def _object(text: str) -> dict[str, Any]:
    found = read_json(text)
    if not isinstance(found, dict):
        raise ValueError(f"found {text!r:.80}, needed is an object")
    return found


def _texts(found: Any) -> tuple[str, ...]:
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"found {found!r:.80}, needed is a list of ids")
    return tuple(found)


class LogPosition:
    """Writes the offset up to which a log was read to a file, at most once for each 16 KiB of the log.

    The offset in the file may therefore be too low by less than this, never too high.

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
        """Write `offset`, up to which the log was read, if it is at least `_STEP_BYTES` above the last written one.

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
        ValueError: The file contains no number.
    """
    return int(file.read_text(encoding="ascii"))
