"""A script whose processes may be dumped and restored: it speaks to its runner by files that are open only for a moment.

It has no connection that a dump would break, and needs nothing of the place where it goes on but its folder, which is the same
everywhere.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hopyard.script.mailbox_files import REPORTS, SAID, SPEAKER

_LOOK_SECONDS: Final = 0.003


class MailboxSession:
    """The script's side of its run; the process that makes it speaks for the run."""

    def __init__(self, folder: Path, *, began: float) -> None:
        """Speak by the files in a folder.

        Args:
            folder: It is there.
            began: When the script began, in monotonic seconds.

        Raises:
            RuntimeError: Another process speaks for the run.
        """
        self._folder = folder
        self._process = os.getpid()
        self._over: SystemExit | None = None
        self._began = began
        self.position = 0
        """The last position that was reached."""
        try:
            with (folder / SPEAKER).open("x") as file:
                file.write(str(self._process))
        except FileExistsError:
            raise RuntimeError(self._elsewhere((folder / SPEAKER).read_text())) from None

    def need_own_process(self) -> None:
        """Refuse to speak in a child of the process that does.

        Raises:
            RuntimeError: This is one.
        """
        if os.getpid() != self._process:
            raise RuntimeError(self._elsewhere(str(self._process)))

    def report(self, position: int, metrics: Mapping[str, float], checkpoint: Path | None) -> None:
        """Report a position above the last one, and wait until the script may train on.

        A checkpoint is packed meanwhile, if the run takes snapshots of these.

        Raises:
            SystemExit: The run ends here.
        """
        if self._over is not None:  # It was caught, and the script went on.
            raise self._over
        said: dict[str, Any] = {
            "position": position,
            "metrics": dict(metrics),
            "seconds": time.monotonic() - self._began,
        }
        if checkpoint is not None:
            said["checkpoint"] = [checkpoint.absolute().name, os.path.realpath(checkpoint)]
        self.position = position
        with (self._folder / REPORTS).open("ab", buffering=0) as file:
            file.write(json.dumps(said).encode() + b"\n")
        while not self._may_go_on(self._said(), waits=checkpoint is not None):
            # Not time.sleep: it would wait for a time of the clock of the computer on which it was called.
            select.select([], [], [], _LOOK_SECONDS)
        self._began = time.monotonic()

    def checkpoint(self) -> None:
        """There is none: the process itself goes on, or begins."""

    def _may_go_on(self, said: Mapping[str, Any], *, waits: bool) -> bool:
        if said.get("leave"):
            self._over = SystemExit(0)
            raise self._over
        free = not waits and self.position < said.get("free", -1)
        return bool(free or self.position <= said.get("go", -1))

    def _said(self) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads((self._folder / SAID).read_text())
        except FileNotFoundError:  # The runner has not spoken yet.
            return {}
        return said

    def _elsewhere(self, speaker: str) -> str:
        return (
            f"process {speaker} speaks for this run, and process {os.getpid()} cannot; allowed: one process of a run that calls "
            "hopyard.report() and hopyard.checkpoint(), such as rank 0"
        )
