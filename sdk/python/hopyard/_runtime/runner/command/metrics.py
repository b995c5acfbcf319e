"""Metrics of a program that knows nothing of Hopyard: lines of its output, and the numbers that patterns find in them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Final

LONGEST_LINE: Final = 64 * 1024
"""Bytes of a line that are looked at; what follows them is not."""

_KEPT_LINES: Final = 12
_KEPT_CHARACTERS: Final = 300


class TrainingCommandError(Exception):
    """A command's program did not do what its experiment says of it.

    Attributes:
        user: whether that is the program's own fault.
    """

    def __init__(self, message: str, *, user: bool = True) -> None:
        """Say what was found."""
        super().__init__(message)
        self.user = user


class LineSplitter:
    """Cuts output into lines.

    A line is what a terminal shows of it in the end: a progress bar that draws itself anew behind a carriage return counts
    once, as it was last drawn. What is no UTF-8 is replaced.
    """

    def __init__(self) -> None:
        """Nothing was read yet."""
        self._partial = b""
        self._partial_size = 0
        self._waiting: deque[tuple[bytes, int]] = deque()
        self.taken = 0
        """Bytes of the output that were given out as lines."""

    def add(self, data: bytes) -> None:
        """Take more output."""
        *complete, rest = data.split(b"\n")
        for line in complete:
            self._waiting.append((self._partial + line, self._partial_size + len(line) + 1))
            self._partial, self._partial_size = b"", 0
        partial = self._partial + rest
        self._partial = partial if len(partial) <= LONGEST_LINE else _last_drawn(partial)
        self._partial_size += len(rest)

    def next(self) -> str | None:
        """The next complete line; None: there is none."""
        if not self._waiting:
            return None
        line, size = self._waiting.popleft()
        self.taken += size
        return _text(line)

    def feed(self, data: bytes) -> list[str]:
        """Take more output; returns the lines that it completes."""
        self.add(data)
        return list(iter(self.next, None))

    def rest(self) -> list[str]:
        """The last line, if no line break ends it."""
        partial, self._partial = self._partial, b""
        self.taken += self._partial_size
        self._partial_size = 0
        return [_text(partial)] if partial else []


def _last_drawn(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2][:LONGEST_LINE]


def _text(line: bytes) -> str:
    return _last_drawn(line).decode(errors="replace")


class MetricReader:
    """Finds metrics in lines.

    Args:
        patterns: Pattern with one group, by metric name.
        metric: The one whose match ends an iteration.
    """

    def __init__(self, patterns: Mapping[str, str], metric: str) -> None:
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._metric = metric
        self.values: dict[str, float] = {}
        """The last value of each metric that has shown up."""
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)

    def read(self, line: str) -> bool:
        """Look at the next line; answers whether it ends an iteration.

        Raises:
            CommandError: What a pattern's group holds is no number.
        """
        self._last.append(line[:_KEPT_CHARACTERS])
        ends = False
        for name, pattern in self._patterns.items():
            found = pattern.search(line)
            if found is None or found[1] is None:
                continue
            try:
                self.values[name] = float(found[1])
            except ValueError:
                raise TrainingCommandError(
                    f"metric {name}: the group of {pattern.pattern!r} holds {found[1][:80]!r}; allowed: a number such as "
                    f"0.93, 1e-3, nan or inf; the line is: {line[:_KEPT_CHARACTERS]}"
                ) from None
            ends = ends or name == self._metric
        return ends

    def missing(self) -> str:
        """The metrics that have not shown up, with their patterns and the last lines read; empty: all have."""
        found = [f"{name} ({one.pattern!r})" for name, one in self._patterns.items() if name not in self.values]
        return f"no line of its output matched the pattern of {', '.join(found)}; {self.last_lines()}" if found else ""

    def last_lines(self) -> str:
        """The last lines that were read, for people."""
        lines = "\n".join(self._last)
        return f"the last lines read:\n{lines}" if lines.strip() else "it printed nothing"
