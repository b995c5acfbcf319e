"""Finds and ends all processes that a process has started, also those that left its process session.

A *family* is a process (its *leader*), its descendants, the processes of its process session, and the processes that have its *mark* in
their environment, with all their descendants. A process that called `setsid`, and whose parent has ended, is found by the mark, which
child processes inherit; a *control group*, which no process can leave by itself, also finds one that has cleared its environment.

Only Linux has the information; elsewhere a family has no members.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from hopyard._runtime.criu import procfs

MARK: Final = "HOPYARD_PROCESS"
"""Environment variable with the mark of a family. It is no secret."""

_PR_SET_CHILD_SUBREAPER: Final = 36
_GONE: Final = (FileNotFoundError, ProcessLookupError, PermissionError)
_LOOK_SECONDS: Final = 0.01
_MOST_ROUNDS: Final = 50
_EXEC_SECONDS: Final = 1.0
_DEAD: Final = "ZX"


class ProcessStatus(NamedTuple):
    """What the kernel says of a process: its state (a letter of `ps`), parent, process session, and start time in clock ticks."""

    state: str
    parent: int
    session: int
    began: int


class Group(Protocol):
    """A control group: the processes that were put into it, and all their descendants."""

    def members(self) -> list[int]:
        """Return the ids of its processes."""

    def kill(self) -> None:
        """Kill all its processes at once, without waiting for their ends."""


def become_subreaper() -> bool:
    """Make this process the parent of all descendants whose parents end, instead of process 1.

    The caller must reap them when they end.

    Returns:
        Whether the kernel supports it. Only Linux does.
    """
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def status_of(pid: int) -> ProcessStatus | None:
    """Return the status of a process; None: it does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except _GONE:
        return None
    return ProcessStatus(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def process_table() -> dict[int, ProcessStatus]:
    """Return the status of all processes of this host, by process id."""
    found = {}
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc"):
            if name.isdigit() and (status := status_of(int(name))) is not None:
                found[int(name)] = status
    return found


def mark_of(pid: int) -> str:
    """Return the mark in the environment with which a process was started; empty: none, or the process is hidden or has ended.

    It waits at most `_EXEC_SECONDS` seconds for a process that is just executing another program.
    """
    until = time.monotonic() + _EXEC_SECONDS
    try:
        # While execve replaces the memory of a process, its environment reads as empty.
        while not (content := Path(f"/proc/{pid}/environ").read_bytes()) and _has_environment(pid):
            if time.monotonic() > until:
                break
            os.sched_yield()  # It takes microseconds, once the process has a CPU.
    except _GONE:
        return ""
    prefix = f"{MARK}=".encode()
    for variable in content.split(b"\0"):
        if variable.startswith(prefix):
            return variable.removeprefix(prefix).decode(errors="replace")
    return ""


def _has_environment(pid: int) -> bool:
    """Return whether a process has an environment, or is about to get one from execve. Kernel threads and zombies have none."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    memory, code, begin, end = (int(fields[index]) for index in (20, 23, 47, 48))
    return memory > 0 and (code == 0 or end > begin)  # execve sets the address of the code last.


def descendants(pids: Iterable[int], table: dict[int, ProcessStatus]) -> set[int]:
    """Return `pids` and all their descendants in a process table."""
    below: dict[int, list[int]] = {}
    for pid, status in table.items():
        below.setdefault(status.parent, []).append(pid)
    found, ahead = set(pids), list(pids)
    while ahead:
        for child in below.get(ahead.pop(), ()):
            if child not in found:
                found.add(child)
                ahead.append(child)
    return found


class ProcessFamily:
    """The family of a process that was started by this process, or by an earlier process with the same task.

    Args:
        leader: Process id of the leader, which also leads a process session.
        mark: Value of `MARK` in the environment of the leader; empty: it has none.
        group: The control group of the leader; None: it has none.
    """

    def __init__(self, leader: int, mark: str = "", group: Group | None = None) -> None:
        present = status_of(leader)
        self._leader = leader
        self._began = present.began if present is not None else 0
        self._mark = mark
        self._group = group
        self._known: dict[int, int] = {}
        """Start times of processes that were descendants of the leader, by process id."""

    def members(self) -> list[int]:
        """Return the ids of all live members, the leader included. It reads the process table, which blocks for some milliseconds."""
        table = process_table()
        return sorted(pid for pid in self._among(table) if table[pid].state not in _DEAD)

    def orphans(self) -> list[int]:
        """Return the ids of the live members that are not descendants of the leader, because their parents have ended."""
        table = process_table()
        below = descendants([self._leader], table)
        return sorted(pid for pid in self._among(table) - below if table[pid].state not in _DEAD)

    def kill(self) -> None:
        """Kill the leader and its present descendants, without waiting for their ends.

        The leader is stopped first, so that it starts no further process, and its descendants stay members when it has ended.
        """
        if not self._present():
            return
        procfs.kill([self._leader], signal.SIGSTOP)
        for pid in procfs.tree(self._leader):
            if (status := status_of(pid)) is not None:
                self._known[pid] = status.began
        procfs.kill(list(self._known))  # Another thread may add some meanwhile.

    def end(self, seconds: float) -> list[int]:
        """Kill all members, repeatedly, until none of them runs or `seconds` have passed; return the ids of those that still run."""
        if self._group is not None:
            self._group.kill()
        return _end(self.members, seconds)

    def end_orphans(self, seconds: float) -> list[int]:
        """Kill the orphans, repeatedly, until none of them runs or `seconds` have passed; return the ids of those that still run."""
        return _end(self.orphans, seconds)

    def _present(self) -> bool:
        """Return whether the leader exists. Its process id may have been given to another process since."""
        status = status_of(self._leader)
        return status is not None and status.began == self._began

    def _among(self, table: dict[int, ProcessStatus]) -> set[int]:
        """Return the members in a process table."""
        roots = {pid for pid, began in self._known.items() if pid in table and table[pid].began == began}
        there = table.get(self._leader)
        # The id of a session is not reused while it has processes: another leader means that the family has none in it.
        if there is None or there.began == self._began:
            roots |= {pid for pid, status in table.items() if status.session == self._leader or pid == self._leader}
        if self._group is not None:
            roots.update(self._group.members())
        if self._mark:
            roots |= {pid for pid in table if mark_of(pid) == self._mark}
        return (descendants(roots, table) & table.keys()) - {os.getpid()}


def _end(find: Callable[[], list[int]], seconds: float) -> list[int]:
    until = time.monotonic() + seconds
    while left := find():
        procfs.kill(_stopped(left, find))
        time.sleep(_LOOK_SECONDS)
        if time.monotonic() > until:
            return find()
    return []


def _stopped(first: list[int], find: Callable[[], list[int]]) -> set[int]:
    """Stop processes until `find` finds no further ones, which they might have started meanwhile; return all that were stopped.

    A stopped process stays the parent of its children, so they are found as its descendants.
    """
    stopped: set[int] = set()
    found = first
    for _ in range(_MOST_ROUNDS):
        new = set(found) - stopped
        if not new:
            break
        procfs.kill(new, signal.SIGSTOP)
        stopped |= new
        found = find()
    return stopped
