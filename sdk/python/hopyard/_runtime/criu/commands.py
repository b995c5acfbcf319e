"""Runs CRIU. A running call can be killed from another thread; a failed call leaves no CRIU processes behind."""

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
"""Offset that a shell adds to the signal number in the exit code of a killed program."""
_LOG_BYTES: Final = 256 * 1024


class Calls:
    """Runs the CRIU calls of one job; another thread can kill the running call with `end`.

    The caller must not begin a call while another is running; this class does not check it.
    """

    def __init__(self) -> None:
        self._tool: subprocess.Popen[bytes] | None = None

    def end(self) -> None:
        """Kill the running CRIU call, if any, whose `run` then raises; later calls of `run` are not affected.

        Safe to call at any time from any thread.
        """
        if self._tool is not None:
            procfs.kill([self._tool.pid])

    def run(self, command: list[str], log: Path, seconds: float) -> None:
        """Run CRIU and wait for its end.

        Args:
            command: Program and arguments.
            log: CRIU's log file; its other output is written to the file `said` in the same folder.
            seconds: Time limit.

        Raises:
            ProcessSnapshotError: CRIU failed, was killed, or exceeded the time limit.
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
                    # CRIU tests kernel features in stopped child processes, which remain if it is killed.
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
