"""Reads the metrics of programs that do not use Hopyard: splits their output into lines and finds numbers with patterns."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from typing import Final

LONGEST_LINE: Final = 64 * 1024
"""Maximum bytes of a line that are examined; the rest is ignored."""

_PERMANENT: Final = re.compile(r"(?:ModuleNotFoundError|ImportError|SyntaxError|IndentationError|TabError): ")
"""The beginning of the line with which Python reports an ImportError or a SyntaxError that ends a program."""

_KEPT_LINES: Final = 12
_KEPT_CHARACTERS: Final = 300


class TrainingCommandError(Exception):
    """Raised if a run's program violated its experiment's settings or could not run.

    Args:
        message: What happened, for the user.
        user: Whether the program itself caused the error.
        permanent: Whether another run of the job on this node would fail in the same way.

    Attributes:
        user: The argument of this name.
        permanent: The argument of this name.
    """

    def __init__(self, message: str, *, user: bool = True, permanent: bool = False) -> None:
        super().__init__(message)
        self.user = user
        self.permanent = permanent


class LineSplitter:
    """Splits output of a program into lines.

    A line is what a terminal finally shows: of text that carriage returns overwrite, such as a progress bar, only the
    last version is returned. Bytes that are not UTF-8 are replaced.
    """

    def __init__(self) -> None:
        self._partial = b""
        self._partial_size = 0
        self._waiting: deque[tuple[bytes, int]] = deque()
        self.taken = 0
        """Bytes of the output that were returned as lines."""

    def add(self, data: bytes) -> None:
        """Append the output bytes `data`, whose complete lines `next` then returns."""
        *complete, rest = data.split(b"\n")
        for line in complete:
            self._waiting.append((self._partial + line, self._partial_size + len(line) + 1))
            self._partial, self._partial_size = b"", 0
        partial = self._partial + rest
        self._partial = partial if len(partial) <= LONGEST_LINE else _last_drawn(partial)
        self._partial_size += len(rest)

    def next(self) -> str | None:
        """Return the next complete line; None if there is none."""
        if not self._waiting:
            return None
        line, size = self._waiting.popleft()
        self.taken += size
        return _text(line)

    def feed(self, data: bytes) -> list[str]:
        """Append the output bytes `data`, and return all complete lines that were not returned yet."""
        self.add(data)
        return list(iter(self.next, None))

    def rest(self) -> list[str]:
        """Return the incomplete last line, which no line break ends, as a list of one line; an empty list if there is none."""
        partial, self._partial = self._partial, b""
        self.taken += self._partial_size
        self._partial_size = 0
        return [_text(partial)] if partial else []


def ends_with_permanent_error(code: int, output: str) -> bool:
    """Return whether a Python program ended with an ImportError or a SyntaxError, which another attempt would repeat.

    Python then exits with code 1, and the last line of its output has the type of the exception. If the message of the exception has
    several lines, or the program prints something after it, the result is False.

    Args:
        code: The exit code of the program.
        output: The last lines of its output.
    """
    return code == 1 and _PERMANENT.match(output.rstrip().rpartition("\n")[2]) is not None


def _last_drawn(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2][:LONGEST_LINE]


def _text(line: bytes) -> str:
    return _last_drawn(line).decode(errors="replace")


class MetricReader:
    """Finds metrics in lines of a program's output with regular expressions.

    Args:
        patterns: Regular expression by metric name; its one group matches the number.
        metric: Name of the metric whose match ends an iteration.
    """

    def __init__(self, patterns: Mapping[str, str], metric: str) -> None:
        self._patterns = {name: re.compile(pattern) for name, pattern in patterns.items()}
        self._metric = metric
        self.values: dict[str, float] = {}
        """The last value of each metric found so far."""
        self._last: deque[str] = deque(maxlen=_KEPT_LINES)

    def read(self, line: str) -> bool:
        """Find metrics in a line, store them in `values`, and return whether the line ends an iteration: it contains `metric`.

        Raises:
            TrainingCommandError: The text in a pattern's group is not a number.
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
        """Return an error text that names the metrics not found so far, their patterns and the last lines; empty if all were found."""
        found = [f"{name} ({one.pattern!r})" for name, one in self._patterns.items() if name not in self.values]
        return f"no line of its output matched the pattern of {', '.join(found)}; {self.last_lines()}" if found else ""

    def last_lines(self) -> str:
        """Return a text with the last 12 lines read, each shortened to 300 characters, for error messages."""
        lines = "\n".join(self._last)
        return f"the last lines read:\n{lines}" if lines.strip() else "it printed nothing"
