"""Runs a service's module in a child process that exits when its parent exits.

`python -m hopyard.client.local_cluster.die_with_parent PARENT MODULE ARGUMENT...` runs `python -m MODULE ARGUMENT...`. In
addition, the process receives SIGTERM when the process with the id PARENT ends for any reason. A killed `hopyard run`
therefore leaves no services running.

If a parent with several threads is killed, the kernel may send its signal several times, once for each thread that ends. A
second SIGTERM would interrupt the orderly shutdown of a service. Therefore the kernel is told to send SIGUSR1, and only the
first one is converted to SIGTERM.
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
"""The signal that the kernel sends when the parent ends."""


def main() -> None:
    """Run the module named on the command line with its arguments; the docstring of this module describes them."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        signal.signal(PARENT_ENDED, _parent_ended)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, PARENT_ENDED)
        if os.getppid() != parent:  # the parent ended before prctl
            sys.exit(1)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _parent_ended(number: int, frame: FrameType | None) -> None:
    signal.signal(PARENT_ENDED, signal.SIG_IGN)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
