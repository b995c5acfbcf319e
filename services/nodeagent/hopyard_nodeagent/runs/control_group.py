"""Control groups (cgroup v2) for training processes, which no child process can leave by itself.

They are used where the agent may create groups below its own one: as root, in a systemd unit with `Delegate=yes`, or in a container
with a writable `/sys/fs/cgroup`. The groups have no limits: they only find and kill processes.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_PREFIX: Final = "hopyard-"
_GONE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.01
_NEW_SECONDS: Final = 60.0
"""Age in seconds up to which another agent may be about to move a process into an empty group."""


class ControlGroup:
    """The control group of one training process.

    Args:
        folder: Its folder in the file system of control groups.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def members(self) -> list[int]:
        """Return the ids of its processes; empty if the group has been deleted."""
        with suppress(OSError):
            return [int(line) for line in (self._folder / "cgroup.procs").read_text().split()]
        return []

    def kill(self) -> None:
        """Kill all its processes at once, without waiting for their ends. Processes that they start meanwhile are killed, too."""
        with suppress(OSError):
            _write(self._folder / "cgroup.kill", "1")

    def delete(self) -> None:
        """Delete the group. It stays if it has processes; the next agent deletes it."""
        with suppress(OSError):
            self._folder.rmdir()


class ControlGroups:
    """Creates the control groups of an agent's training processes below the agent's own group.

    The constructor kills the processes in groups that an earlier agent with the same data folder left, and deletes these groups. It
    also deletes groups of other agents that have no processes and are older than `_NEW_SECONDS`.

    Args:
        home: Id of the agent's data folder.
        root: The folder of the group below which groups are created; None: this host allows no such groups.
    """

    def __init__(self, home: str, root: Path | None) -> None:
        self._prefix = f"{_PREFIX}{home}-"
        self._root = root
        if root is not None:
            for folder in root.glob(f"{_PREFIX}*"):
                if folder.name.startswith(self._prefix):
                    _end(ControlGroup(folder))
                else:
                    _delete_if_old(folder)

    @property
    def available(self) -> bool:
        """Whether this host allows control groups."""
        return self._root is not None

    def add(self, pid: int) -> ControlGroup | None:
        """Create a group, move a process into it that was just started, and return it; None if that is not possible."""
        if self._root is None:
            return None
        folder = self._root / f"{self._prefix}{pid}"
        group = ControlGroup(folder)
        try:
            folder.mkdir()
            _write(folder / "cgroup.procs", str(pid))
        except ProcessLookupError:  # It has ended.
            group.delete()
            return None
        except OSError as error:
            group.delete()
            _log.warning("no control group for process %d: %s", pid, error.strerror)
            return None
        return group


def writable_root(mounts: Path = Path("/proc/self/mountinfo"), own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """Return the folder of this process's own control group (version 2) if groups can be created in it; None: they cannot.

    Args:
        mounts: The kernel's list of mounts.
        own: The kernel's list of the control groups of this process.
    """
    try:
        name = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
        for line in mounts.read_text().splitlines():
            before, _, after = line.partition(" - ")
            fields = before.split()
            if after.split()[0] == "cgroup2" and "rw" in fields[5].split(","):
                inside = os.path.relpath(name, fields[3])
                folder = Path(fields[4]) / ("" if inside.startswith("..") else inside)
                # The kernel creates cgroup.kill in each group but the root, since Linux 5.14.
                if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
                    return folder if _can_kill(folder) else None
    except (OSError, StopIteration, IndexError):
        pass
    return None


def _delete_if_old(folder: Path) -> None:
    with suppress(OSError):  # It has processes, or has been deleted meanwhile.
        if time.time() - folder.stat().st_mtime > _NEW_SECONDS:
            folder.rmdir()


def _write(file: Path, text: str) -> None:
    """Write to an existing file of the kernel."""
    handle = os.open(file, os.O_WRONLY)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _can_kill(folder: Path) -> bool:
    probe = folder / f"{_PREFIX}probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    try:
        return (probe / "cgroup.kill").exists()
    finally:
        probe.rmdir()


def _end(group: ControlGroup) -> None:
    """Kill the processes of a group, and delete it if they end within `_GONE_SECONDS`."""
    found, until = group.members(), time.monotonic() + _GONE_SECONDS
    group.kill()
    while group.members() and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)
    left = group.members()
    if ended := [pid for pid in found if pid not in left]:
        _log.warning("ended %d processes that an earlier agent left in a control group: %s", len(ended), ended)
    if left:
        _log.error(
            "%d processes that an earlier agent left in a control group still run %g s after they were killed: %s",
            len(left),
            _GONE_SECONDS,
            left,
        )
    group.delete()
