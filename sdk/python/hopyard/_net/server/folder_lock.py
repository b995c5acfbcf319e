"""A lock that ensures that only one service of a kind uses a data folder."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from hopyard._common.private_files import open_private
from hopyard.errors import Conflict


class FolderLock:
    """An exclusive lock on a data folder. The kernel releases it when the process ends, even after a crash.

    Args:
        data: The folder, which must exist.
        service: Name of the service, used for the lock file and in messages.
    """

    def __init__(self, data: Path, service: str) -> None:
        self._path = data / f"{service}.lock"
        self._service = service
        self._handle: int | None = None

    def take(self) -> None:
        """Acquire the lock without waiting.

        Raises:
            Conflict: The lock is already acquired, by another process or by this one; the message names the process id.
        """
        handle = open_private(self._path, os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
            os.close(handle)
            who = f"another {self._service} (process {holder})" if holder.isdigit() else f"another {self._service}"
            raise Conflict(
                f"{self._path.parent}: {who} uses this data folder; stop it, or name another folder with --data"
            ) from error
        with suppress(OSError):  # If the disk is full, the lock works without the process id in its file.
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        self._handle = handle

    def give_back(self) -> None:
        """Release the lock; safe to call twice."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
