"""Reads information about processes from /proc, and sends signals to processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_GONE: Final = (FileNotFoundError, ProcessLookupError, PermissionError)
_LOOK_SECONDS: Final = 0.01


def tree(pid: int, *, most: int | None = None) -> list[int]:
    """Return `pid` and the process ids of all its descendants, parents first; only `pid` if this process has ended.

    Args:
        pid: The process.
        most: Maximum number of processes; None: no limit. Further ones are omitted.
    """
    found = [pid]
    for one in found:
        found += children(one)
        if most is not None and len(found) >= most:
            return found[:most]
    return found


def children(pid: int) -> list[int]:
    """Return the process ids of the children of a process, zombies included; empty if it has ended."""
    found: list[int] = []
    with suppress(*_GONE):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def running(pid: int) -> bool:
    """Return whether the process `pid` exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except _GONE:
        return False


def name(pid: int) -> str:
    """Return a text for messages with the id of a process and, if it exists, its command name."""
    try:
        return f"process {pid} ({Path(f'/proc/{pid}/comm').read_text().strip()})"
    except _GONE:
        return f"process {pid}"


def namespace_pid(pid: int) -> int:
    """Return the id of a process in its own PID namespace; 0 if the process has ended."""
    return int(_status(pid, "NSpid").split()[-1] or 0) if _status(pid, "NSpid") else 0


def members(pid: int) -> dict[str, str]:
    """Return the running processes among `pid` and its descendants: command names by the id in the process's own PID namespace."""
    found = {}
    for one in filter(running, tree(pid)):
        with suppress(*_GONE):
            found[str(namespace_pid(one))] = Path(f"/proc/{one}/comm").read_text().strip()
    return found


def own_bytes(pids: Iterable[int]) -> int:
    """Return the approximate size in bytes of a CRIU image of the processes `pids`: their anonymous and shared memory.

    A process that has ended adds 0.
    """
    fields = ("RssAnon", "RssShmem")
    return sum(int((_status(pid, field) or "0").split()[0]) * 1024 for pid in pids for field in fields)


def open_files(pid: int) -> list[str]:
    """Return the link targets of a process's open file descriptors, such as a path or "socket:[INODE]"; empty if it has ended."""
    found = []
    with suppress(*_GONE):
        for handle in os.listdir(f"/proc/{pid}/fd"):
            with suppress(*_GONE):
                found.append(os.readlink(f"/proc/{pid}/fd/{handle}"))
    return found


def programs(pid: int) -> set[str]:
    """Return the paths of the files from which a process executes code: its program and libraries; empty if it has ended."""
    found = set()
    with suppress(*_GONE):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines():
            parts = line.split(maxsplit=5)
            if len(parts) == 6 and "x" in parts[1] and parts[5].startswith("/") and not parts[5].endswith(" (deleted)"):
                found.add(parts[5])
    return found


def mounted(mount: str, marker: str) -> list[int]:
    """Return the ids of all processes that see, at the mount point `mount`, a folder whose path contains `marker`.

    It also finds processes whose parents have ended.
    """
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(*_GONE, OSError):
                if any(root_of == mount and marker in root for root, root_of in _mounts(int(entry))):
                    found.append(int(entry))
    return found


def kill(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send the signal `number` to the processes `pids`, ignoring those that have ended or that belong to another user."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def end(find: Callable[[], Iterable[int]], seconds: float) -> list[int]:
    """Kill the processes that `find` returns, repeatedly, until none of them runs or `seconds` have passed.

    Returns:
        The ids of the processes that still run.
    """
    until = time.monotonic() + seconds
    while left := [pid for pid in find() if running(pid)]:
        kill(left)
        if time.monotonic() > until:
            return left
        time.sleep(_LOOK_SECONDS)
    return []


def _mounts(pid: int) -> Iterator[tuple[str, str]]:
    for line in Path(f"/proc/{pid}/mountinfo").read_text(errors="surrogateescape").splitlines():
        parts = line.split(" ", 5)
        yield parts[3], parts[4]


def _status(pid: int, field: str) -> str:
    with suppress(*_GONE):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return line.partition(":")[2].strip()
    return ""
