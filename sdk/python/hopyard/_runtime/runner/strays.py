"""Ends processes that a run has left in the warm runner, before the next run begins."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from hopyard._runtime.criu import procfs

_SECONDS: Final = 5.0
"""Time limit for killed processes to disappear. The agent ends what is left with the runner."""

_NAME_CHARACTERS: Final = 15
"""Maximum length of the name of a process in the kernel, which cuts off the rest."""
_HELPERS: Final = frozenset({"torch_shm_manager"[:_NAME_CHARACTERS]})
"""Names of processes that a library starts once for each process, in their own session, and that end with it."""


def end_strays() -> list[int]:
    """Kill the descendants of this process that have left its process session, and their descendants, and reap them.

    Processes in the session stay, such as a pool of workers that the trainer's module keeps from run to run: they end with this
    process.

    Returns:
        The ids of the processes that were found.
    """
    found = _strays()
    if found:
        procfs.end(_strays, _SECONDS)
        for pid in found:
            with suppress(ChildProcessError):  # It was a grandchild, or a thread of the trainer has waited for it.
                os.waitpid(pid, os.WNOHANG)
    return found


def _strays() -> list[int]:
    own = os.getsid(0)
    found: list[int] = []
    for pid in procfs.tree(os.getpid())[1:]:
        if pid not in found and _session(pid) not in (own, 0) and _name(pid) not in _HELPERS:
            found += [one for one in procfs.tree(pid) if one not in found]
    return found


def _session(pid: int) -> int:
    """Return the process session of a process; 0 if it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""
