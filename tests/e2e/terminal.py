"""Runs a command of a test on a pseudo-terminal of its own, which the test can close."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class Terminal:
    """A command that runs as the leader of a session on a new pseudo-terminal.

    Attributes:
        process: The process of the command.
        shown: The output so far.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._master, slave = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40", **environment},
            cwd=folder,
            pass_fds=[slave],
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)

    def read_until(self, text: str) -> None:
        """Read the output until it contains `text`."""
        while text not in self.shown:
            try:
                self.shown += os.read(self._master, 65536).decode(errors="replace")
            except OSError as error:  # the command has ended
                raise AssertionError(self.shown) from error

    def close(self) -> None:
        """Close the terminal: the kernel sends SIGHUP to the command."""
        os.close(self._master)


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of all processes that name `folder`, or a path in it, in their arguments or environment."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and process.name != str(os.getpid()):
            with contextlib.suppress(OSError):
                words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                if str(folder).encode() in words:
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found
