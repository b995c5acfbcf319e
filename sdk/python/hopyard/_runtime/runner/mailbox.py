"""The runner's side of what a script says whose processes are dumped and restored: files in the job's folder.

No connection has to be there when the processes are dumped, and none to be made anew where they are restored. The script's side is
`hopyard.script.mailbox`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from hopyard._runtime.runner.progress_sources import Tail
from hopyard.policy.vocabulary import RunEndReason
from hopyard.script.mailbox_files import REPORTS, SAID


class Mailbox:
    """The files of one run, from outside."""

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
