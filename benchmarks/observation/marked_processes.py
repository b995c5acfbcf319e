"""Finds the processes of a cluster by an environment variable, which all of them inherit."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import psutil

POLL_SECONDS: Final = 0.2
_MOST_CHARACTERS: Final = 200


class MarkedProcesses:
    """The processes whose environment has a variable with a value.

    Args:
        variable: Name of the variable.
        value: Its value, which only the processes of one cluster have.
    """

    def __init__(self, variable: str, value: str) -> None:
        self._variable = variable
        self._value = value

    def running(self) -> list[psutil.Process]:
        """Return those that run. Zombies do not count."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                marked = process.environ().get(self._variable) == self._value
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def kill(self) -> None:
        """Kill all of them at once, until there are none."""
        while found := self.running():
            for process in found:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(found, timeout=5)

    def left(self, limit: float) -> list[str]:
        """Wait at most `limit` seconds until none runs. Kill those that still do, and return a message about each."""
        end = time.monotonic() + limit
        while (found := self.running()) and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        said = []
        for process in found:
            with suppress(psutil.Error):
                command = " ".join(process.cmdline())[:_MOST_CHARACTERS]
                said.append(f"process {process.pid} ({command}) is left")
        self.kill()
        return said
