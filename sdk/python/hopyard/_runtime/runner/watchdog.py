"""Leaving when nobody is in charge any more: the agent is dead or silent, an iteration hangs, a gang is broken."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import sys
from typing import Final, NamedTuple

EXIT_AGENT_GONE: Final = 75
"""The agent is dead or was silent for longer than its lease: nobody wants this run's output any more."""

EXIT_HUNG: Final = 76
"""An iteration took longer than the experiment allows."""

EXIT_GANG_BROKEN: Final = 77
"""Another rank of the gang is gone, and the training code has not come to notice."""

CRASHES: Final = frozenset({signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
"""Signals that a process brings upon itself."""

_PR_SET_PDEATHSIG: Final = 1


class Leaving(NamedTuple):
    """Why a process ends at once, for people, and the exit code that says so to its agent."""

    code: int
    reason: str


class LeaseWatch:
    """Whether the agent has been silent for too long, asked at every tick of a thread.

    A process that was itself stopped (by a debugger, a full slot, C code that never lets Python run) could not
    hear anybody: a tick that comes late therefore grants the agent a full lease again.
    """

    def __init__(self, now: float) -> None:
        """Start without a lease: it comes with the first run."""
        self._lease = math.inf
        self._heard = now
        self._ticked = now

    @property
    def tick_seconds(self) -> float:
        """How often `expired` is to be asked."""
        return min(1.0, self._lease / 8)

    def renew(self, lease_seconds: float, now: float) -> None:
        """A run came with this lease (> 0 seconds)."""
        self._lease = lease_seconds
        self.heard(now)

    def heard(self, now: float) -> None:
        """Something came from the agent."""
        self._heard = now

    def expired(self, now: float) -> bool:
        """Whether the agent was silent for longer than the lease while this process could hear it."""
        stalled = now - self._ticked > 3 * self.tick_seconds
        self._ticked = now
        if stalled:
            self._heard = now
        return now - self._heard > self._lease


def die_with(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Have the kernel end this process when its parent dies, whatever it is doing then.

    Only Linux can; elsewhere the watch notices a little later.

    Args:
        parent: the agent's process id.
        by: the signal that ends it.
    """
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"prctl(PR_SET_PDEATHSIG): {os.strerror(error)}")
    # It may have died before the kernel was told.
    if os.getppid() != parent:
        os._exit(EXIT_AGENT_GONE)
