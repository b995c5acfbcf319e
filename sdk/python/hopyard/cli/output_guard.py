"""Keeps a command alive whose output can no longer be written, so that it can end in order."""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TextIO, cast

_GONE: Final = select.POLLERR | select.POLLHUP


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
