"""Limits of a process that runs foreign code for the scheduler: its memory and the number of its processes."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hopyard._common.formatting import size
from hopyard._runtime.criu import procfs

DEFAULT_MEMORY_BYTES: Final = 2 << 30
"""Default limit of the physical memory of a process with its descendants."""

MOST_PROCESSES: Final = 256
"""Maximum number of processes: the process and its descendants."""

LOOK_SECONDS: Final = 0.5
"""Seconds between two checks of the limits of a process."""

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """The limits of a process together with its descendants.

    Attributes:
        memory_bytes: Maximum physical memory in bytes. 0: no limit.
        processes: Maximum number of processes.
    """

    memory_bytes: int = DEFAULT_MEMORY_BYTES
    processes: int = MOST_PROCESSES

    def excess(self, pid: int) -> str:
        """Return which limit the process `pid` with its descendants exceeds, as an error text; empty: none.

        It reads files of the kernel, which blocks for some milliseconds.
        """
        family = procfs.tree(pid, most=self.processes + 1)
        if len(family) > self.processes:
            return f"it has started more than {max(self.processes - 1, 0)} processes"
        if not self.memory_bytes:
            return ""
        used = sum(map(_resident_bytes, family))
        if used > self.memory_bytes and len(family) > 1:
            # Measure again, with each shared page counted once. It takes longer.
            used = sum(map(_proportional_bytes, family))
        if used > self.memory_bytes:
            return f"out of memory: it used {size(used)} of its limit of {size(self.memory_bytes)}"
        return ""


def _resident_bytes(pid: int) -> int:
    """Return the physical memory of a process in bytes, with shared pages; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _proportional_bytes(pid: int) -> int:
    """Return the physical memory of a process in bytes, with its part of shared pages, or with all of them if its part is hidden."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return _resident_bytes(pid)


def end_first(pid: int) -> None:
    """Make the kernel end the process `pid` before others when the memory of the computer is short."""
    with suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
