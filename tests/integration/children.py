"""Which processes this one has started and not waited for yet."""

from __future__ import annotations

import psutil


def running(module: str) -> list[int]:
    """Those that run a module. One that ends while it is looked at is none."""
    return [child.pid for child in psutil.Process().children() if _runs(child, module)]


def _runs(process: psutil.Process, module: str) -> bool:
    try:
        return module in process.cmdline()
    except psutil.NoSuchProcess:  # Or a zombie, which psutil tells by the same.
        return False
