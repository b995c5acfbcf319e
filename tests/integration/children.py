"""List the running child processes of the test process."""

from __future__ import annotations

import psutil


def running(module: str) -> list[int]:
    """Return the process ids of the live children that run `module`; a child that exits during the check is left out."""
    return [child.pid for child in psutil.Process().children() if _runs(child, module)]


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        return module in process.cmdline()
    except psutil.NoSuchProcess:  # Raised for a zombie as well.
        return False
