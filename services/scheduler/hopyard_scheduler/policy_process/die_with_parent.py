"""Replaces its own process by a command that receives SIGTERM when the scheduler ends.

Usage: `python die_with_parent.py PARENT COMMAND ARGUMENT...`, where PARENT is the process id of the scheduler.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request SIGTERM at the end of the parent process (Linux only), then execute the command of the arguments.

    It exits with an error if the parent has ended already or the command cannot be executed.
    """
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # The parent ended before `prctl`.
            sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
