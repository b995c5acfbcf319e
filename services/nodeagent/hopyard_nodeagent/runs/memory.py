"""Memory limits of processes: periodically measures a process and its child processes."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import psutil

_CHECK_SECONDS: Final = 0.5


def used_bytes(pid: int, limit: int = 0) -> int:
    """Return the physical memory of a process and its child processes in bytes; 0 if the process has ended.

    Processes of the same process session are included, even if their parents have ended. On Linux, if the total exceeds `limit`
    bytes, it is measured again with each shared page counted only once, which takes long. A result up to `limit`, and any result on
    another system, may count shared pages several times.
    """
    try:
        parent = psutil.Process(pid)
        kin = {parent, *parent.children(recursive=True), *_processes(of_session(pid))}
    except psutil.NoSuchProcess:
        return 0
    family = sorted(kin, key=lambda process: process.pid)
    held = sum(_resident(process) for process in family)
    if held <= limit or len(family) == 1 or not sys.platform.startswith("linux"):
        return held
    return sum(_proportional(process) for process in family)


class MemoryGuard:
    """A watchdog (`Guard`) that ends a process when its memory and that of its child processes exceed a limit.

    Args:
        pid: Id of the process.
        limit: Memory limit of the process and its children, in bytes.
        setting: Name of the setting that limits the memory, for messages.
        check_seconds: Seconds between two measurements.
        measure: Returns the memory in bytes, for a process id and the limit; may block.
    """

    def __init__(
        self,
        pid: int,
        limit: int,
        *,
        setting: str = "resources.per_job.memory",
        check_seconds: float = _CHECK_SECONDS,
        measure: Callable[[int, int], int] = used_bytes,
    ) -> None:
        self._pid = pid
        self._limit = limit
        self._setting = setting
        self._check_seconds = check_seconds
        self._measure = measure
        self.excess = ""
        """Error message that says by how much the limit was exceeded; empty: it was not exceeded."""

    async def watch(self, end: Callable[[], Awaitable[None]]) -> None:
        """Measure until cancelled. When the limit is exceeded, set the error message `excess`, call `end`, and return.

        `end` kills the process.
        """
        while True:
            used = await asyncio.to_thread(self._measure, self._pid, self._limit)
            if used > self._limit:
                self.excess = (
                    f"out of memory: used {_text(used)} of its limit of {_text(self._limit)} ({self._setting})"
                )
                await end()
                return
            await asyncio.sleep(self._check_seconds)


def of_session(leader: int) -> list[int]:
    """Return the ids of all processes in the process session with this leader."""
    found = []
    for other in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):  # It ended meanwhile, or is hidden from us.
            if os.getsid(other) == leader:
                found.append(other)
    return found


def _processes(pids: list[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _proportional(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.NoSuchProcess:
        return 0
    except psutil.AccessDenied:  # It belongs to another user now.
        return _resident(process)


def _text(size: int) -> str:
    amount, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{size} B" if unit == "B" else f"{amount:.1f} {unit}"
