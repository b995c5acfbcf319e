"""Sources of a child program's progress: metrics in the program's output, or the reports of a script."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from hopyard._runtime.holes import punch_hole
from hopyard._runtime.job_log import LogPosition
from hopyard._runtime.runner.command.metrics import LineSplitter, MetricReader, TrainingCommandError
from hopyard._runtime.runner.failures import NOTHING_REPORTED
from hopyard.policy.vocabulary import RunEndReason
from hopyard.script.mailbox_files import REPORTS, SAID
from hopyard.trainer import IterationReport

_READ_BYTES: Final = 1024 * 1024
_FREED_BYTES: Final = 1024 * 1024
_KEPT_LINES: Final = 12
_KEPT_CHARACTERS: Final = 300


class FileTail:
    """Reads lines from a file to which another process appends.

    Args:
        file: The file to read, which must exist; the constructor opens it.
        start: The offset in bytes at which reading starts.
        echo: Receives a copy of all data from `start` on; None: no copy.
        echoed: Number of bytes at `start` that were copied before and are not copied again.
        position: Records the offset after the last line that `line` or `rest` returned; None: it is not recorded.
        frees: Whether the disk space of returned lines is freed, because nobody else reads the file.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(
        self,
        file: Path,
        *,
        start: int,
        echo: BinaryIO | None = None,
        echoed: int = 0,
        position: LogPosition | None = None,
        frees: bool = False,
    ) -> None:
        self._file = file.open("r+b" if frees else "rb")
        self._position = position
        self._freed = start if frees else None
        self._file.seek(start)
        self._start = start
        self._lines = LineSplitter()
        self._echo = echo
        self._unechoed = echoed

    @property
    def offset(self) -> int:
        """The offset in bytes after the last line that `line` or `rest` returned; `start` if they have returned none."""
        return self._start + self._lines.taken

    @property
    def echoed(self) -> int:
        """The number of bytes after `offset` that were read and, if there is an `echo`, copied to it."""
        return self._file.tell() - self.offset

    def read(self) -> None:
        """Read all data that the program has appended since the last call, and copy it to `echo`, if given.

        `line` then returns the lines.
        """
        self._tell_position()
        while data := self._file.read(_READ_BYTES):
            self._lines.add(data)
            if self._echo is not None:
                self._echo.write(data[self._unechoed :])
                self._unechoed = max(0, self._unechoed - len(data))
        if self._echo is not None:
            self._echo.flush()

    def _tell_position(self) -> None:
        """Record `offset` by the argument `position`, if given, and free the disk space of the bytes before it, if `frees` is set.

        If the file system cannot free space, later calls do not try it again.
        """
        if self._position is not None:
            self._position.advance(self.offset)
        if self._freed is not None and self.offset - self._freed >= _FREED_BYTES:
            if punch_hole(self._file.fileno(), self._freed, self.offset):
                self._freed = self.offset
            else:
                self._freed = None

    def line(self) -> str | None:
        """Return the next complete line; None if there is none."""
        return self._lines.next()

    def rest(self) -> list[str]:
        """Return the incomplete last line, which no line break ends, as a list of one line; an empty list if there is none."""
        return self._lines.rest()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class ProgressSource(Protocol):
    """Converts lines that a child program writes to reports of iterations."""

    def take(self, line: str, position: int, seconds: float) -> IterationReport | None:
        """Return the report in a line; None if the line contains no report.

        Args:
            line: The line.
            position: Position of the last report.
            seconds: Seconds since the last report.

        Raises:
            TrainingCommandError: The line contains an invalid report.
        """

    def missing(self) -> str:
        """Return an error text about required output that has not appeared; empty if all has appeared."""

    def last_lines(self) -> str:
        """Return a text with the last lines of the program's output, for error messages."""

    def keep(self) -> dict[str, Any]:
        """Return the state of this source as JSON values; it is stored in snapshots of the processes."""

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Restore the state `kept`, which `keep` returned before the processes were dumped."""


class OutputMetrics:
    """The progress of a program whose output contains metrics.

    Args:
        patterns: Regular expression by metric name; its one group matches the number.
        metric: Name of the metric whose match ends an iteration.
    """

    def __init__(self, patterns: Mapping[str, str], metric: str) -> None:
        self._reader = MetricReader(patterns, metric)

    def take(self, line: str, position: int, seconds: float) -> IterationReport | None:
        """Return a report if the line contains the experiment's metric, which ends an iteration; else None.

        Args:
            line: The line.
            position: Position of the last report; the new report has the next one.
            seconds: Seconds since the last report.

        Raises:
            TrainingCommandError: A pattern matched a text that is not a number.
        """
        return IterationReport(position + 1, dict(self._reader.values), seconds) if self._reader.read(line) else None

    def missing(self) -> str:
        """Return an error text about the metrics that no line contained; empty if all were found."""
        return self._reader.missing()

    def last_lines(self) -> str:
        """Return a text with the last lines read, for error messages."""
        return self._reader.last_lines()

    def keep(self) -> dict[str, Any]:
        """Return the last value of each metric."""
        return {"values": self._reader.values}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Restore the last values of the metrics from `kept`, which `keep` returned before the processes were dumped."""
        self._reader.values.update(kept["values"])


class Reported:
    """The progress of a script that writes its reports to a file, one JSON object per line."""

    def __init__(self) -> None:
        self.checkpoint: tuple[str, str] | None = None
        """The checkpoint of the last report: its name and its path as the script sees it; None: the report had none."""
        self._any = False
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)

    def take(self, line: str, position: int, seconds: float) -> IterationReport | None:
        """Return the report in a line; never None.

        Args:
            line: The line, a JSON object.
            position: Position of the last report.
            seconds: Not used; the report contains its duration.

        Raises:
            TrainingCommandError: The line is not a report, or its position is not larger than `position`.
        """
        try:
            said = json.loads(line)
            report = IterationReport(said["position"], said["metrics"], said["seconds"])
            name, place = said.get("checkpoint") or ("", "")
        except (ValueError, TypeError, KeyError) as error:
            raise TrainingCommandError(
                f"what the script reports is damaged: {line[:_KEPT_CHARACTERS]!r} ({error!r})"
            ) from error
        if report.position <= position:
            raise TrainingCommandError(f"the script reports position {report.position} behind {position}")
        self._any = True
        self.checkpoint = (name, place) if name else None
        return report

    def printed(self, line: str) -> None:
        """Record a line of the script's output for `last_lines`."""
        self._last.append(line[:_KEPT_CHARACTERS])

    def missing(self) -> str:
        """Return an error text if the script has never reported, else an empty text."""
        return "" if self._any else NOTHING_REPORTED

    def last_lines(self) -> str:
        """Return a text with the last lines that the script printed, for error messages."""
        lines = "\n".join(self._last)
        return f"its last lines:\n{lines}" if lines.strip() else "it printed nothing"

    def keep(self) -> dict[str, Any]:
        """Return an empty dict: no state must be restored, since `recall` needs none."""
        return {}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Record that the script has reported before its processes were dumped; `kept` is not used."""
        self._any = True


class Mailbox:
    """The runner's side of the files through which a script and its runner exchange messages.

    A script whose processes can be dumped uses files, because a dump would have to include a connection. `hopyard.script.mailbox` is
    the script's side.

    Args:
        folder: The job's folder, in which the files are; it must exist before `open` is called.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said = ""
        self._reports: FileTail | None = None

    def open(self) -> None:
        """Open the file with the script's reports, to read it from the beginning; create it if it does not exist."""
        file = self._folder / REPORTS
        file.touch()
        self._reports = FileTail(file, start=0)

    @property
    def reports(self) -> FileTail:
        """The reader of the script's reports file; only after `open`."""
        assert self._reports is not None
        return self._reports

    @property
    def pending(self) -> dict[str, int]:
        """The offset in bytes up to which the reports file was processed, by the name of the file.

        A process snapshot stores only the part of the file after this offset.
        """
        return {REPORTS: self.reports.offset}

    def say(self, *, go: int, free: int, leave: RunEndReason | None = None) -> None:
        """Write, for the script, the positions up to which it may train. The script reads them after each report.

        Args:
            go: After a report of a position up to and including this one, the script may continue.
            free: After a report of a position below this one, the script may also continue, beyond `go`, unless it gave the report
                a checkpoint (a file or folder with its training state).
            leave: Why the script must end its run; None: the run continues.
        """
        said = json.dumps({"go": go, "free": free, "leave": leave.value if leave is not None else ""})
        if said != self._said:
            partial = self._folder / f".{SAID}"
            partial.write_text(said)
            os.replace(partial, self._folder / SAID)
            self._said = said
