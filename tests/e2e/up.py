"""Runs `hopyard up` as a child process of a test, and reads its messages about its services."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.e2e.harness import REPOSITORY
from tests.timing import HANG_SECONDS

ROW = re.compile(r"^(\S+)\s+(unix:\S+)\s+(\d+)\s")
AGAIN = re.compile(r"^(\S+) serves again \(process (\d+)\)")
DIED = re.compile(r"^(\S+) ended \(")
IS_UP = "the cluster is up"


class Up:
    """`hopyard up` with two agents, which pass the variables `environment` to jobs; a thread reads its output.

    Attributes:
        pids: The process of each service that serves now, by name.
        restarted: Services that were started again.
    """

    def __init__(self, data: Path, *, slots: int = 1, **environment: str) -> None:
        command = [sys.executable, "-m", "hopyard.cli.main", "up", "--data", str(data), "--agents", "2"]
        self.process = subprocess.Popen(
            [*command, "--slots", str(slots), *(f"--pass-env={name}" for name in environment)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "300", "PYTHONPATH": str(REPOSITORY), **environment},
        )
        self.pids: dict[str, int] = {}
        self.restarted: set[str] = set()
        self._addresses: dict[str, str] = {}
        self.said: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.said.append(line)
                if row := ROW.match(line):
                    self._addresses[row[1]], self.pids[row[1]] = row[2], int(row[3])
                if died := DIED.match(line):
                    self.pids.pop(died[1], None)
                if again := AGAIN.match(line):
                    self.pids[again[1]] = int(again[2])
                    self.restarted.add(again[1])
                self._changed.notify_all()

    def wait_for(self, text: str, limit: float = HANG_SECONDS) -> None:
        """Wait until the output contains `text`."""
        with self._changed:
            found = self._changed.wait_for(lambda: any(text in line for line in self.said), limit)
        assert found, "".join(self.said)

    def wait_serving(self, name: str, limit: float = HANG_SECONDS) -> int:
        """Wait until a service serves; return its process id."""
        with self._changed:
            found = self._changed.wait_for(lambda: name in self.pids, limit)
            assert found, "".join(self.said)
            return self.pids[name]

    @property
    def server(self) -> str:
        """The scheduler's address; it is the same after each restart, also of `hopyard up`."""
        self.wait_serving("scheduler")
        return self._addresses["scheduler"]

    def stop(self) -> int:
        """Send SIGINT, as Ctrl-C does, and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self._ended()

    def kill(self) -> None:
        """Kill `hopyard up`; its services notice that and end."""
        self.process.kill()
        self._ended()

    def _ended(self) -> int:
        code = self.process.wait(HANG_SECONDS)
        self._reader.join(HANG_SECONDS)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code
