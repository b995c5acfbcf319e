"""The folder of a scheduler for the files of its policy processes. It is deleted even after `kill -9` of the scheduler.

Each scheduler has one folder `hopyard-policies-*` in the system's temporary folder and locks it. The kernel releases
the lock when the process dies. Each scheduler deletes the unlocked folders with such a name. Therefore a new folder
gets this name only after it is locked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

LOCKED: Final = "hopyard-policies-"
"""Prefix of a folder that its process keeps locked."""

UNLOCKED: Final = "hopyard-new-policies-"
"""Prefix of a folder that is not locked yet."""

_LONGEST_UNLOCKED_SECONDS: Final = 3600.0
"""Age in seconds from which an unlocked new folder is considered abandoned: its process died before it locked the folder."""


class PolicyFolders:
    """Creates folders for policy processes inside one folder of this scheduler, which the first call of `make` creates.

    Args:
        parent: The folder in which the folder of this scheduler is created; None: the system's temporary folder.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent
        self._own: tuple[Path, int] | None = None

    def make(self) -> Path:
        """Create and return a new empty folder for the files of one policy process."""
        if self._own is not None and not self._own[0].is_dir():  # Another program has removed it.
            os.close(self._own[1])
            self._own = None
        if self._own is None:
            self._own = _locked(self._where)
        return Path(tempfile.mkdtemp(prefix="policy-", dir=self._own[0]))

    def close(self) -> None:
        """Delete the folder of this scheduler and the abandoned folders of dead schedulers. May be called more than once."""
        if self._own is not None:
            (path, handle), self._own = self._own, None
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)
        self.remove_abandoned()

    def remove_abandoned(self) -> None:
        """Delete the folders that dead schedulers of this user left. Folders that cannot be deleted are skipped."""
        for path in _folders(self._where, LOCKED):
            _remove_unlocked(path)
        for path in _folders(self._where, UNLOCKED):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _LONGEST_UNLOCKED_SECONDS:
                    _remove_unlocked(path)

    @property
    def _where(self) -> Path:
        return self._parent if self._parent is not None else Path(tempfile.gettempdir())


def _locked(parent: Path) -> tuple[Path, int]:
    """Create a folder in the folder `parent`, lock it, and then rename it with the prefix `LOCKED`.

    Returns:
        The path of the folder, and the open descriptor that has the lock.
    """
    made = Path(tempfile.mkdtemp(prefix=UNLOCKED, dir=parent))
    try:
        handle = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            named = parent / (LOCKED + made.name.removeprefix(UNLOCKED))
            made.rename(named)
        except BaseException:
            os.close(handle)
            raise
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return named, handle


def _folders(parent: Path, prefix: str) -> Iterator[Path]:
    try:
        names = os.listdir(parent)
    except OSError:
        return
    yield from (parent / name for name in names if name.startswith(prefix))


def _remove_unlocked(path: Path) -> None:
    """Delete the folder `path` if it belongs to this user and no process has locked it. Errors are ignored."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.fstat(handle).st_uid != os.getuid():
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        return
    finally:
        os.close(handle)
