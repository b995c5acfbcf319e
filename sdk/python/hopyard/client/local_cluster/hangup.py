"""Shuts down a program with an embedded cluster in order when its terminal is closed."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Final

EXIT_HANGUP: Final = 129
"""Exit code of a program that SIGHUP ended: 128 + 1, as shells report it."""


def exit_on_hangup() -> None:
    """Make SIGHUP raise SystemExit in the main thread, so that `with` blocks are left as they are at Ctrl-C.

    Without a handler SIGHUP would end the process at once. Nothing is changed if the program ignores or handles SIGHUP, or if the
    caller is not the main thread, which alone can install handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _hang_up)


def _hang_up(number: int, frame: FrameType | None) -> None:
    # A closed terminal may cause several signals, which must not interrupt the orderly end.
    signal.signal(number, signal.SIG_IGN)
    sys.exit(EXIT_HANGUP)
