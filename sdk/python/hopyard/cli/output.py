"""Prints results on stdout, as text or as exactly one JSON document, and messages on stderr.

`OutputGuard` keeps a command alive whose output can no longer be written, so that it can end in order.
"""

from __future__ import annotations

import dataclasses
import enum
import errno
import json
import math
import os
import select
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TextIO, cast

from hopyard._common.formatting import printable

_UNLIMITED: Final = 100_000
_GONE: Final = select.POLLERR | select.POLLHUP


def plain(value: object) -> Any:
    """Convert a value to types that JSON can represent.

    Dataclasses become objects, enums their values, paths strings, and numbers that are not finite null.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def emit_json(value: object) -> None:
    """Print a value as one JSON document on stdout."""
    sys.stdout.write(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def emit(renderable: Any) -> None:
    """Print a string or a rich renderable, the result of a command, on stdout."""
    show(renderable)


def show(renderable: Any, *, stderr: bool = False) -> None:
    """Print a string or a rich renderable on stdout or stderr. Without a terminal, lines are neither truncated nor wrapped.

    Control characters are replaced as by `printable`.
    """
    from rich.console import Console

    from hopyard.cli.live.style import Escaped

    console = Console(stderr=stderr, highlight=False, soft_wrap=isinstance(renderable, str))
    if not console.is_terminal:
        console = Console(stderr=stderr, highlight=False, soft_wrap=isinstance(renderable, str), width=_UNLIMITED)
    console.print(printable(renderable) if isinstance(renderable, str) else Escaped(renderable), markup=False)


def width() -> int:
    """Return the number of characters of a line on stdout: the terminal's width, or 100,000 without a terminal."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else _UNLIMITED


def height() -> int | None:
    """Return the number of lines of the terminal that stdout is; None: stdout is not a terminal."""
    from rich.console import Console

    console = Console()
    return console.height if console.is_terminal else None


def fills_terminal() -> bool:
    """Return whether stdout is a terminal that a full-screen view can be drawn on."""
    from rich.console import Console

    return sys.stdout.isatty() and not Console().is_dumb_terminal


def say(line: str) -> None:
    """Print a line on stderr, for messages that are not part of the result."""
    sys.stderr.write(printable(line) + "\n")
    sys.stderr.flush()


class OutputGuard:
    """A context manager: while it is open, writes to stdout and stderr raise no error if nobody can read them any more.

    * The reader of a pipe or socket has closed it: further output is discarded, and `closed` is called.
    * A terminal is gone: further output is discarded. Its signal is SIGHUP, which a command may ignore (`nohup`).
    * Any other error of stderr, such as a full disk: the output is lost. Such errors of stdout, which has the result, are raised.

    Args:
        closed: Called when the reader of stdout or stderr is found to be gone; possibly more than once.
    """

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed
        self._saved: tuple[TextIO, TextIO] | None = None

    def __enter__(self) -> Self:
        """Replace `sys.stdout` and `sys.stderr`."""
        self._saved = sys.stdout, sys.stderr
        sys.stdout = cast("TextIO", _GuardedStream(sys.stdout, self._closed, errors_raised=True))
        sys.stderr = cast("TextIO", _GuardedStream(sys.stderr, self._closed, errors_raised=False))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore `sys.stdout` and `sys.stderr`."""
        if self._saved is not None:
            sys.stdout, sys.stderr = self._saved

    def check(self) -> None:
        """Call `closed` if the reader of stdout or stderr has closed its pipe, also if nothing was written since."""
        if self._saved is not None:
            for stream in self._saved:
                if reader_closed(stream):
                    discard(stream)
                    self._closed()


class _GuardedStream:
    """A text stream that handles errors of its writes as `OutputGuard` documents."""

    def __init__(self, stream: TextIO, closed: Callable[[], None], *, errors_raised: bool) -> None:
        self._stream = stream
        self._closed = closed
        self._errors_raised = errors_raised

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        if isinstance(error, ConnectionError):
            discard(self._stream)
            self._closed()
        elif error.errno == errno.EIO and stat.S_ISCHR(
            _mode(self._stream)
        ):  # `isatty` is false for a terminal that is gone
            discard(self._stream)
        elif self._errors_raised:
            raise error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def reader_closed(stream: TextIO) -> bool:
    """Return whether `stream` is a pipe or socket whose reader has closed it. The stream may have no file descriptor."""
    mode = _mode(stream)
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    poll = select.poll()
    poll.register(stream, 0)
    return any(event & _GONE for _, event in poll.poll(0))


def _mode(stream: TextIO) -> int:
    """Return the type of the file that a stream writes to, as in `os.stat_result.st_mode`; 0: it has no file descriptor."""
    try:
        return os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return 0


def discard(stream: TextIO) -> None:
    """Discard what `stream` still buffers and all that is written to it from now on, so that no later write or flush fails.

    Its file descriptor is replaced by the null device. A stream without a file descriptor is not changed.
    """
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)
        stream.flush()
