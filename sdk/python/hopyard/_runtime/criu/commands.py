"""CRIU at work: one call at a time, which can be ended at any moment and leaves nothing of itself when it does not succeed."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from hopyard._runtime.criu import procfs
from hopyard._runtime.criu.binary import explain
from hopyard._runtime.criu.errors import ProcessSnapshotError

_SHELL_SIGNALS: Final = 128
"""What a shell adds to the number of a signal by which a program was killed that it started."""
_LOG_BYTES: Final = 256 * 1024


class Calls:
    """What is called of CRIU for one job."""

    def __init__(self) -> None:
        self._tool: subprocess.Popen[bytes] | None = None

    def end(self) -> None:
        """End the call that is under way, if one is; safe to call at any time."""
        if self._tool is not None:
            procfs.kill([self._tool.pid])

    def run(self, command: list[str], log: Path, seconds: float) -> None:
        """Run CRIU.

        Args:
            command: It, and what it is to do.
            log: Where it writes what it does; what it says else goes beside it.
            seconds: How long it may take.

        Raises:
            ProcessSnapshotError: It failed, was killed or took too long.
        """
        with log.with_name("said").open("wb") as said:
            try:
                tool = self._tool = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0
                )
            except OSError as error:
                raise ProcessSnapshotError(f"{command[0]}: {error.strerror}") from error
            try:
                code = tool.wait(seconds)
            except subprocess.TimeoutExpired:
                raise ProcessSnapshotError(f"CRIU took longer than {seconds:g} s and was ended") from None
            finally:
                self._tool = None
                if tool.returncode != 0:
                    # It tries the kernel on children of its own, which stand still where it is killed.
                    with suppress(ProcessLookupError):
                        os.killpg(tool.pid, signal.SIGKILL)
                    tool.wait()
        if code < 0 or code > _SHELL_SIGNALS:
            raise ProcessSnapshotError(f"CRIU was killed by signal {-code if code < 0 else code - _SHELL_SIGNALS}")
        if code:
            raise ProcessSnapshotError(explain(_tail(log) + _tail(log.with_name("said"))))


def _tail(log: Path) -> str:
    with suppress(OSError), log.open("rb") as opened:
        opened.seek(max(0, os.fstat(opened.fileno()).st_size - _LOG_BYTES))
        return opened.read().decode(errors="replace")
    return ""
