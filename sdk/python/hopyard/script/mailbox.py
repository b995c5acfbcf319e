"""The session of a script whose processes may be dumped and restored: it exchanges messages with its runner through files.

The files are open only briefly, and there is no connection that a dump would break. A restored script needs only the folder of its
mailbox, which has the same path on every node.
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
    """The connection of a script to its runner through a mailbox, for a script whose processes may be dumped.

    A mailbox is a folder of files in which script and runner write messages to each other. `hopyard.script` creates one session
    for the run and calls `report` for each report of the script. Only the process that creates the session may report.

    The constructor records this process in the mailbox as the one that makes the reports.

    Args:
        folder: The folder of the mailbox, which must exist.
        began: Time at which the script began, in seconds of `time.monotonic`.

    Raises:
        RuntimeError: Another process makes the reports of this run.
    """

    def __init__(self, folder: Path, *, began: float) -> None:
        self._folder = folder
        self._process = os.getpid()
        self._over: SystemExit | None = None
        self._began = began
        self.position = 0
        """The last reported position."""
        try:
            with (folder / SPEAKER).open("x") as file:
                file.write(str(self._process))
        except FileExistsError:
            raise RuntimeError(self._elsewhere((folder / SPEAKER).read_text())) from None

    def need_own_process(self) -> None:
        """Raise RuntimeError if this is not the process that created the session, such as a forked child."""
        if os.getpid() != self._process:
            raise RuntimeError(self._elsewhere(str(self._process)))

    def report(self, position: int, metrics: Mapping[str, float], checkpoint: Path | None) -> None:
        """Report a position larger than the last one, and wait until the script may continue to train.

        Args:
            position: The position.
            metrics: Metrics by name.
            checkpoint: File or folder with the training state; the runner packs it before this returns, if a snapshot is needed; None:
                there is none.

        Raises:
            SystemExit: The run ends here.
        """
        if self._over is not None:  # The script caught the exception and reports again.
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
            # Not time.sleep: after a restore on another host, it would wait for a time of the former host's clock.
            select.select([], [], [], _LOOK_SECONDS)
        self._began = time.monotonic()

    def checkpoint(self) -> None:
        """Return None: a script with a mailbox never loads a checkpoint. It starts from scratch, or its restored processes continue."""

    def _may_go_on(self, said: Mapping[str, Any], *, waits: bool) -> bool:
        if said.get("leave"):
            self._over = SystemExit(0)
            raise self._over
        free = not waits and self.position < said.get("free", -1)
        return bool(free or self.position <= said.get("go", -1))

    def _said(self) -> dict[str, Any]:
        try:
            said: dict[str, Any] = json.loads((self._folder / SAID).read_text())
        except FileNotFoundError:  # The runner has not written it yet.
            return {}
        return said

    def _elsewhere(self, speaker: str) -> str:
        return (
            f"process {speaker} speaks for this run, and process {os.getpid()} cannot; allowed: one process of a run that calls "
            "hopyard.report() and hopyard.checkpoint(), such as rank 0"
        )
