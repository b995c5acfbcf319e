"""Where a runner learns what the program that it started has reached: from what it prints, or from what its script reports."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from hopyard._runtime.runner.command.metrics import LineSplitter, MetricReader, TrainingCommandError
from hopyard._runtime.runner.failures import NOTHING_REPORTED
from hopyard.policy.vocabulary import RunEndReason
from hopyard.script.mailbox_files import REPORTS, SAID
from hopyard.trainer import IterationReport

_READ_BYTES: Final = 1024 * 1024
_KEPT_LINES: Final = 12
_KEPT_CHARACTERS: Final = 300


class Tail:
    """A file that a program appends to, line by line."""

    def __init__(self, file: Path, *, start: int, echo: BinaryIO | None = None, echoed: int = 0) -> None:
        """Read what follows the offset `start`, and copy to `echo` what follows so many bytes of that."""
        self._file = file.open("rb")
        self._file.seek(start)
        self._start = start
        self._lines = LineSplitter()
        self._echo = echo
        self._unechoed = echoed

    @property
    def offset(self) -> int:
        """Behind the last line that was given out."""
        return self._start + self._lines.taken

    @property
    def echoed(self) -> int:
        """Bytes behind `offset` that were read, and so copied."""
        return self._file.tell() - self.offset

    def read(self) -> None:
        """Take in what was appended."""
        while data := self._file.read(_READ_BYTES):
            self._lines.add(data)
            if self._echo is not None:
                self._echo.write(data[self._unechoed :])
                self._unechoed = max(0, self._unechoed - len(data))
        if self._echo is not None:
            self._echo.flush()

    def line(self) -> str | None:
        """The next complete line; None: there is none."""
        return self._lines.next()

    def rest(self) -> list[str]:
        """The last line, if no line break ends it."""
        return self._lines.rest()

    def close(self) -> None:
        """Read no more."""
        self._file.close()


class ProgressSource(Protocol):
    """Turns lines into reports."""

    def take(self, line: str, position: int, seconds: float) -> IterationReport | None:
        """The report that a line makes behind `position`, so many seconds after the last one; None: none."""

    def missing(self) -> str:
        """What did not show up of what a whole run must have said; empty: nothing."""

    def last_lines(self) -> str:
        """What the program said last, for people."""

    def keep(self) -> dict[str, Any]:
        """What the next run of the same processes has to know."""

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Know it."""


class Printed:
    """Metrics in what a program prints."""

    def __init__(self, patterns: Mapping[str, str], metric: str) -> None:
        """As `MetricReader`."""
        self._reader = MetricReader(patterns, metric)

    def take(self, line: str, position: int, seconds: float) -> IterationReport | None:
        """A line with the experiment's metric ends an iteration."""
        return IterationReport(position + 1, dict(self._reader.values), seconds) if self._reader.read(line) else None

    def missing(self) -> str:
        """Metrics that no line has shown."""
        return self._reader.missing()

    def last_lines(self) -> str:
        """What was read last."""
        return self._reader.last_lines()

    def keep(self) -> dict[str, Any]:
        """The last value of each metric."""
        return {"values": self._reader.values}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """Go on from these values."""
        self._reader.values.update(kept["values"])


class Reported:
    """What a script reports, a JSON object in each line."""

    def __init__(self) -> None:
        """It has reported nothing."""
        self.checkpoint: tuple[str, str] | None = None
        """The checkpoint that came with the last report: its name, and where the script has it."""
        self._any = False
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)

    def take(self, line: str, position: int, seconds: float) -> IterationReport | None:
        """Each line is a report."""
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
        """It has printed something."""
        self._last.append(line[:_KEPT_CHARACTERS])

    def missing(self) -> str:
        """A report."""
        return "" if self._any else NOTHING_REPORTED

    def last_lines(self) -> str:
        """What it printed last."""
        lines = "\n".join(self._last)
        return f"its last lines:\n{lines}" if lines.strip() else "it printed nothing"

    def keep(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def recall(self, kept: Mapping[str, Any]) -> None:
        """It has reported before."""
        self._any = True


class Mailbox:
    """The files through which one run of a script whose processes can be dumped reports, seen from the runner.

    Files need no connection that a dump would have to include. `hopyard.script.mailbox` is the script's side.
    """

    def __init__(self, folder: Path) -> None:
        """Use the job's folder; `open` follows when that is there."""
        self._folder = folder
        self._said = ""
        self._reports: Tail | None = None

    def open(self) -> None:
        """Read what the script reports from now on, and what it has reported that nobody has read."""
        file = self._folder / REPORTS
        file.touch()
        self._reports = Tail(file, start=0)

    @property
    def reports(self) -> Tail:
        """What the script reports."""
        assert self._reports is not None
        return self._reports

    @property
    def pending(self) -> dict[str, int]:
        """The file of reports, and the offset behind which nobody has read it."""
        return {REPORTS: self.reports.offset}

    def say(self, *, go: int, free: int, leave: RunEndReason | None = None) -> None:
        """Say that a script may train on that stands at `go` or before, or below `free`; `leave`: that its run is over, and why."""
        said = json.dumps({"go": go, "free": free, "leave": leave.value if leave is not None else ""})
        if said != self._said:
            partial = self._folder / f".{SAID}"
            partial.write_text(said)
            os.replace(partial, self._folder / SAID)
            self._said = said
