"""A process on a pseudo terminal: keys are typed, and what the terminal would show can be waited for."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.timing import HANG_SECONDS

_SEQUENCE: Final = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|\x1b.|[^\x1b]")


class TerminalScreen:
    """What a terminal shows, from the control sequences that `hopyard.cli.live.terminal` and a shell write.

    Args:
        columns: Characters per line.
        rows: Number of lines.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.alternate = False
        self.cursor_hidden = False
        self._cells: dict[tuple[int, int], str] = {}
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        for found in _SEQUENCE.finditer(text):
            private, numbers, final = found.groups()
            if final is None:
                self._character(found[0])
            elif private:
                self._mode(numbers, on=final == "h")
            else:
                self._control(numbers, final)

    def text(self) -> str:
        """Return the lines of the screen without trailing blanks."""
        lines = ["".join(self._cells.get((row, at), " ") for at in range(self.columns)) for row in range(self.rows)]
        return "\n".join(line.rstrip() for line in lines)

    def _character(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row += 1
            if self._row >= self.rows:
                self._row = self.rows - 1
                self._cells = {(row - 1, at): cell for (row, at), cell in self._cells.items() if row}
        elif character >= " ":
            self._cells[self._row, self._column] = character
            self._column = min(self._column + 1, self.columns - 1)

    def _mode(self, number: str, *, on: bool) -> None:
        if number == "1049":
            self.alternate, self._cells, self._row, self._column = on, {}, 0, 0
        elif number == "25":
            self.cursor_hidden = not on

    def _control(self, numbers: str, final: str) -> None:
        if final == "H":
            row, _, column = numbers.partition(";")
            self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
        elif final == "K":
            self._erase(lambda row, column: row == self._row and column >= self._column)
        elif final == "J":
            below = numbers != "2"
            self._erase(lambda row, _: row >= self._row if below else True)

    def _erase(self, where: object) -> None:
        self._cells = {at: cell for at, cell in self._cells.items() if not where(*at)}  # type: ignore[operator]


class PtySession:
    """A context manager that runs a command as the foreground process of a new pseudo terminal, and kills it at the end.

    Args:
        command: The command line.
        environment: Variables added to those of this process.
        size: Columns and rows of the terminal.
        folder: Working directory; None: that of this process.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        size: tuple[int, int] = (80, 24),
        folder: Path | None = None,
    ) -> None:
        self.screen = TerminalScreen(*size)
        self.output = ""
        self._master, self._slave = os.openpty()
        self.resize(*size, tell=False)
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            command,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            cwd=folder,
            env={**kept, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **(environment or {})},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(HANG_SECONDS)
        os.close(self._master)
        os.close(self._slave)

    def covered(self) -> bool:
        """Return whether the terminal shows the alternate screen without a cursor, as a full-screen view does."""
        return self.screen.alternate and self.screen.cursor_hidden

    @property
    def cooked(self) -> bool:
        """Whether the terminal echoes and edits lines, as a shell needs it."""
        return all(termios.tcgetattr(self._slave)[3] & flag for flag in (termios.ECHO, termios.ICANON, termios.ISIG))

    @property
    def restored(self) -> bool:
        """Whether the terminal is as before: with echo and line editing, the normal screen, and a visible cursor."""
        return self.cooked and not self.screen.alternate and not self.screen.cursor_hidden

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int, *, tell: bool = True) -> None:
        """Change the size of the terminal, which sends SIGWINCH to the foreground process."""
        if tell:
            self.screen = TerminalScreen(columns, rows)
            self.screen.alternate = True
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until the screen matches a regular expression, and return the match."""
        end = time.monotonic() + HANG_SECONDS
        while (found := re.search(pattern, self.screen.text())) is None:
            assert time.monotonic() < end, f"{pattern!r} did not appear; the screen:\n{self.screen.text()}"
            self._read()
        return found

    def wait(self) -> int:
        """Wait until the process has ended and all of its output was read, and return its exit code."""
        end = time.monotonic() + HANG_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < end, f"the process has not ended; the screen:\n{self.screen.text()}"
            self._read()
        while self._read(0.0):
            pass
        return self.process.returncode

    def _read(self, seconds: float = 0.1) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        text = os.read(self._master, 65536).decode(errors="replace")
        self.output += text
        self.screen.feed(text)
        return True
