"""Takes over a terminal for a full-screen view: draws frames without flicker, reads keys, and always restores the terminal."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TextIO

from hopyard.cli.live.keys import ESCAPE_SECONDS, Key, KeyDecoder

_ENTER: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J"
"""Alternate screen, no cursor, no automatic wrap, empty screen."""

_LEAVE: Final = "\x1b[?7h\x1b[?25h\x1b[?1049l"

_BEGIN_FRAME: Final = "\x1b[?2026h"
_END_FRAME: Final = "\x1b[?2026l"
"""Terminals that know synchronized output show all of a frame at once; others ignore the sequences."""


def is_foreground(stream: TextIO) -> bool:
    """Return whether a stream is a terminal whose foreground process group is the one of this process."""
    with suppress(OSError, ValueError, AttributeError):
        return stream.isatty() and os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    return False


class Terminal:
    r"""A context manager that takes over the terminal of a stream, on the running event loop of the main thread.

    While it is open, the alternate screen is shown, and what the process writes to `sys.stderr` is written when it is closed, or when
    the process stops. If stdin is a terminal, keys are read without echo; Ctrl-C, Ctrl-Z and Ctrl-\ keep their meaning.

    The terminal is restored when the context ends for any reason, before the process is stopped by Ctrl-Z (`fg` takes the terminal over
    again), and before SIGQUIT ends the process. SIGINT and SIGTERM are not handled: the caller must end the context.

    Args:
        stream: The terminal to draw on.
        on_key: Called with each key; None: no keys are read.
        on_change: Called when the size of the terminal has changed, or when the terminal was taken over again.
    """

    def __init__(self, stream: TextIO, on_key: Callable[[Key], object] | None, on_change: Callable[[], object]) -> None:
        self._stream = stream
        self._on_key = on_key if _is_terminal(sys.stdin) else None
        self._on_change = on_change
        self._loop = asyncio.get_running_loop()
        self._decoder = KeyDecoder()
        self._escape: asyncio.TimerHandle | None = None
        self._modes: list[Any] | None = None
        self._stderr: TextIO | None = None
        self._held = io.StringIO()
        self._shown: list[str] = []
        self._taken = False

    def __enter__(self) -> Self:
        """Take over the terminal."""
        handlers = {
            signal.SIGWINCH: self._resized,
            signal.SIGTSTP: lambda: self._stop(signal.SIGTSTP),
            signal.SIGQUIT: lambda: self._stop(signal.SIGQUIT),
            signal.SIGCONT: self._take,
        }
        self._handlers = handlers
        for number, handler in handlers.items():
            self._loop.add_signal_handler(number, handler)
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal, and write what was held back from `sys.stderr`."""
        try:
            self._restore()
        finally:
            for number in self._handlers:
                self._loop.remove_signal_handler(number)

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines of text with their control sequences for colours. They must fit the terminal.

        Only lines that differ from those shown before are written, with one write. Nothing is written while the process is in the
        background.

        Raises:
            OSError: The terminal is gone.
        """
        if not self._taken:
            self._take()
            if not self._taken:
                return
        changed = [
            f"\x1b[{row + 1};1H{line}\x1b[0m\x1b[K"
            for row, line in enumerate(lines)
            if row >= len(self._shown) or self._shown[row] != line
        ]
        if len(lines) < len(self._shown):
            changed.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        if changed:
            self._write(f"{_BEGIN_FRAME}{''.join(changed)}{_END_FRAME}")
        self._shown = list(lines)

    def invalidate(self) -> None:
        """Clear the screen, so that the next frame writes all lines."""
        self._shown = []
        if self._taken:
            self._write("\x1b[H\x1b[2J")

    def _take(self) -> None:
        """Take over the terminal, unless this was done, or the process is in the background: its user then works in the shell."""
        if self._taken or not is_foreground(self._stream):
            return
        self._taken = True
        self._shown = []
        self._held = io.StringIO()
        self._stderr, sys.stderr = sys.stderr, self._held
        self._write(_ENTER)
        if self._on_key is not None and is_foreground(sys.stdin):
            with suppress(termios.error, OSError):
                self._modes = termios.tcgetattr(sys.stdin.fileno())
                tty.setcbreak(sys.stdin.fileno(), termios.TCSANOW)
                self._loop.add_reader(sys.stdin.fileno(), self._read)
        self._on_change()

    def _restore(self) -> None:
        if not self._taken:
            return
        self._taken = False
        if self._escape is not None:
            self._escape.cancel()
        if self._modes is not None:
            with suppress(termios.error, OSError, ValueError):
                self._loop.remove_reader(sys.stdin.fileno())
            with suppress(termios.error, OSError, ValueError):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, self._modes)
            self._modes = None
        with suppress(OSError, ValueError):
            self._write(_LEAVE)
        if self._stderr is not None:
            sys.stderr, self._stderr = self._stderr, None
            with suppress(OSError, ValueError):
                sys.stderr.write(self._held.getvalue())
                sys.stderr.flush()

    def _stop(self, number: signal.Signals) -> None:
        """Restore the terminal and let a signal have its default effect: SIGTSTP stops the process until `fg`, SIGQUIT ends it."""
        self._restore()
        handler = self._handlers[number]
        self._loop.remove_signal_handler(number)
        # To this thread, so that the process stops here and not somewhere later.
        signal.pthread_kill(threading.get_ident(), number)
        self._loop.add_signal_handler(number, handler)
        self._take()

    def _resized(self) -> None:
        # Terminals rearrange what is shown when their size changes.
        self.invalidate()
        self._on_change()

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:  # the terminal is gone
            self._loop.remove_reader(sys.stdin.fileno())
            return
        if self._escape is not None:
            self._escape.cancel()
            self._escape = None
        self._press(self._decoder.feed(data))
        if self._decoder.pending:
            self._escape = self._loop.call_later(ESCAPE_SECONDS, lambda: self._press(self._decoder.flush()))

    def _press(self, keys: Sequence[Key]) -> None:
        for key in keys:
            if self._on_key is not None:
                self._on_key(key)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # a closed stream
        return False
