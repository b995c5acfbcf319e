"""Runs a service's module as a child that does not outlive its parent.

`python -m hopyard.client.child PARENT MODULE ARGUMENT...` is `python -m MODULE ARGUMENT...`, but the kernel sends it
SIGTERM when the process PARENT ends, however that ends: a killed `hopyard run` leaves no services behind.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main() -> None:
    """See the module."""
    parent, module = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before the line above
            sys.exit(1)
    sys.argv = [module, *sys.argv[3:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
