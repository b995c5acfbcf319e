"""One AppStat for a data folder: its commits wake the watchers of its own process only."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from hopyard.errors import Conflict


class FolderLock:
    """An exclusive lock on a data folder; the kernel gives it back when the process dies, however it dies."""

    def __init__(self, data: Path) -> None:
        self._path = data / "appstat.lock"
        self._handle: int | None = None

    def take(self) -> None:
        """Take the lock.

        Raises:
            Conflict: Another process has it.
        """
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(handle)
            raise Conflict(
                f"{self._path.parent}: another appstat uses this data folder; stop it, or name another folder with "
                "--data"
            ) from error
        self._handle = handle

    def give_back(self) -> None:
        """Give the lock back; safe to call twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
