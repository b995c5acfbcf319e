"""Reasons for a process to end immediately: the agent is dead or silent, an iteration hangs, or a gang is broken."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
from typing import Final, NamedTuple

EXIT_AGENT_GONE: Final = 75
"""Exit code: the agent is dead or was silent for longer than its lease, so the output of the run is not wanted any more."""

EXIT_HUNG: Final = 76
"""Exit code: an iteration exceeded the experiment's time limit."""

EXIT_GANG_BROKEN: Final = 77
"""Exit code: another rank of the gang is gone, and the training code did not notice."""

CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
"""Signals that end a process because of its own error, such as an invalid memory access."""

_PR_SET_PDEATHSIG: Final = 1


class ProcessExit(NamedTuple):
    """An immediate end of the process: the exit code for its agent, and the reason as text.

    The code is 75 (the agent is dead or silent), 76 (an iteration hangs) or 77 (a gang is broken).
    """

    code: int
    reason: str


class LeaseWatch:
    """Detects that the agent has been silent for longer than its lease; a thread calls `expired` every `tick_seconds`.

    All times are monotonic seconds. If this process was stopped (by a debugger, a loaded host, or C code that holds the
    interpreter lock), it could not receive messages. After a call of `expired` that is late by more than three times
    `tick_seconds`, the agent therefore gets a full lease again.

    Without a lease, which `renew` sets, `expired` returns False.

    Args:
        now: Time of the creation; `expired` measures from it whether its first call is late.
    """

    def __init__(self, now: float) -> None:
        self._lease = math.inf
        self._heard = now
        self._ticked = now

    @property
    def tick_seconds(self) -> float:
        """Seconds between two calls of `expired`."""
        return min(1.0, self._lease / 8)

    def renew(self, lease_seconds: float, now: float) -> None:
        """Set the lease to `lease_seconds` (> 0), and record a message of the agent at `now`."""
        self._lease = lease_seconds
        self.heard(now)

    def heard(self, now: float) -> None:
        """Record that a message of the agent arrived at `now`."""
        self._heard = now

    def expired(self, now: float) -> bool:
        """Return whether the agent was silent for longer than the lease at `now`; call it every `tick_seconds`."""
        stalled = now - self._ticked > 3 * self.tick_seconds
        self._ticked = now
        if stalled:
            self._heard = now
        return now - self._heard > self._lease


def die_with(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Make the kernel send a signal to this process when its parent dies; exit now with code 75 if it is dead already.

    Only on Linux; on other systems the lease detects the death a little later.

    Args:
        parent: Process id of the parent, which is the agent.
        by: The signal.

    Raises:
        OSError: The kernel refused.
    """
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"prctl(PR_SET_PDEATHSIG): {os.strerror(error)}")
    # The parent may have died before the call.
    if os.getppid() != parent:
        os._exit(EXIT_AGENT_GONE)
