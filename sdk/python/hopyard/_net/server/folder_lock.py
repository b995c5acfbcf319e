"""One service of a kind for a data folder."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from hopyard.errors import Conflict


class FolderLock:
    """An exclusive lock on a data folder; the kernel gives it back when the process dies, however it dies.

    Args:
        data: The folder, which exists.
        service: Whose lock it is: of its file's name, and in messages.
    """

    def __init__(self, data: Path, service: str) -> None:
        self._path = data / f"{service}.lock"
        self._service = service
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock.

        Raises:
            Conflict: Another process has it; the message says which.
        """
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
            os.close(handle)
            who = f"another {self._service} (process {holder})" if holder.isdigit() else f"another {self._service}"
            raise Conflict(
                f"{self._path.parent}: {who} uses this data folder; stop it, or name another folder with --data"
            ) from error
        with suppress(OSError):  # the lock holds all the same when the disk is full
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._handle = handle

    def give_back(self) -> None:
        """Give the lock back; safe to call twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
