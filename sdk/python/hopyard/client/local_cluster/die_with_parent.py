"""Runs a service's module as a child that does not outlive its parent.

`python -m hopyard.client.local_cluster.die_with_parent PARENT MODULE ARGUMENT...` is `python -m MODULE ARGUMENT...`, but it gets
SIGTERM when the process PARENT ends, however that ends: a killed `hopyard run` leaves no services behind.

The kernel tells of the end of each thread that the child falls to in turn, so a killed parent with threads is told of several
times, at once. A second SIGTERM would end a service in the middle of its orderly stop: the signal from the kernel is another
one, and only the first becomes SIGTERM.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from types import FrameType
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
PARENT_ENDED: Final = signal.SIGUSR1
"""What the kernel sends."""


def main() -> None:
    """See the module."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        signal.signal(PARENT_ENDED, _parent_ended)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, PARENT_ENDED)
        if os.getppid() != parent:  # it ended before the line above
            sys.exit(1)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _parent_ended(number: int, frame: FrameType | None) -> None:
    signal.signal(PARENT_ENDED, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
