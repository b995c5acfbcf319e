"""A file lock that allows one cluster per data directory.

The lock file contains the id and a description of the process that acquired the lock. The kernel releases the lock when this
process and all child processes that inherited it have exited.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from hopyard._common.private_files import make_private_folder, open_private
from hopyard.errors import Conflict

_POLL_SECONDS: Final = 0.1


class DataLock:
    """The lock of a data directory, held by this process. Create it with `acquire`.

    Attributes:
        path: The lock file.
        descriptor: File descriptor of the lock; -1 after `release`. Child processes inherit it, so the directory stays locked
            until the last of them has exited.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def acquire(cls, data: Path, purpose: str) -> Self:
        """Lock a data directory, which is made private, and created if it is missing.

        Args:
            data: The directory.
            purpose: Description of this process, such as "hopyard run", for the error message of processes that find the
                directory locked.

        Raises:
            InvalidInput: Other users could read or replace the directory (`make_private_folder`). Nothing was written.
            Conflict: Another cluster holds the lock. The message names its process.
            OSError: The lock file cannot be written. The error names it.
        """
        make_private_folder(data)
        path = data / "cluster.lock"
        descriptor = open_private(path, os.O_RDWR)
        try:
            while not _locked(descriptor, fcntl.LOCK_EX):
                # A shared lock can be taken beside those of processes that only ask whether a cluster runs (`is_locked`).
                # They hold it for microseconds and must not keep a cluster from starting.
                if not _locked(descriptor, fcntl.LOCK_SH):
                    raise Conflict(_held(data, lock_holder(data)))
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        except BaseException:
            os.close(descriptor)
            raise
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "purpose": purpose}).encode(), 0)
        except OSError as error:
            os.close(descriptor)
            raise OSError(error.errno, error.strerror, str(path)) from error
        return cls(path, descriptor)

    def release(self) -> None:
        """Close the descriptor, which releases the lock unless a child process still holds it. Safe to call twice."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


async def acquire_when_free(
    data: Path, purpose: str, *, patience: float, note: Callable[[str], None] = lambda text: None
) -> DataLock:
    """Lock a data directory. If the process that acquired the lock is gone and only its services still hold it, wait for them.

    Services whose starting process was killed shut down in order, which takes some seconds.

    Args:
        data: The directory.
        purpose: Description of this process; see `DataLock.acquire`.
        patience: Maximum time to wait for such services, in seconds.
        note: Called once with a message when the wait begins.

    Raises:
        Conflict: A live cluster holds the lock, or the services have not exited in time.
    """
    end = time.monotonic() + patience
    noted = False
    while True:
        try:
            return DataLock.acquire(data, purpose)
        except Conflict:
            holder = lock_holder(data)
            if holder is None or _lives(holder[0]) or time.monotonic() >= end:
                raise
        if not noted:
            noted = True
            note(f"waiting for the services that {holder[1]} (process {holder[0]}, gone) started to end")
        await asyncio.sleep(_POLL_SECONDS)


def lock_holder(data: Path) -> tuple[int, str] | None:
    """Return id and purpose of the last process that acquired the lock of the data directory `data`. It may have exited.

    None: the lock file is missing or unreadable.
    """
    try:
        found: Any = json.loads((data / "cluster.lock").read_text(encoding="utf-8"))
        return int(found["pid"]), str(found["purpose"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def has_data(data: Path) -> bool:
    """Return whether the data directory `data` has the data of a cluster, also of one whose services were started one by one."""
    return any((data / name).exists() for name in ("cluster.lock", "appstat.sqlite"))


def is_locked(data: Path) -> bool:
    """Return whether a cluster holds the lock of the data directory `data` now."""
    try:
        descriptor = os.open(data / "cluster.lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, kind: int) -> bool:
    """Try to lock an open file without waiting. Return whether this process has the lock now; False: another one has it.

    Args:
        descriptor: Descriptor of the file.
        kind: `fcntl.LOCK_SH` or `fcntl.LOCK_EX`.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _held(data: Path, holder: tuple[int, str] | None) -> str:
    if holder is None:
        return f"{data}: another cluster is using this data directory; stop it, or choose another with --data"
    pid, purpose = holder
    if not _lives(pid):
        return (
            f"{data}: services that {purpose} (process {pid}, gone) started are still shutting down; try again shortly"
        )
    return f"{data}: {purpose} (process {pid}) is using this data directory; stop it, or choose another with --data"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it belongs to another user
    return True
