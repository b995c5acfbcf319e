"""The folder of a scheduler for the files of its policy processes, deleted even after `kill -9`.

Each scheduler has one folder `hopyard-policies-*` in the system's temporary folder, and holds a lock on it, which the
kernel releases when the process dies. Every scheduler deletes such folders without a lock. Therefore a folder gets this
name only after it is locked.
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
"""Age in seconds at which an unlocked new folder counts as abandoned: its process died before it locked the folder."""


class PolicyFolders:
    """Creates folders for policy processes inside one folder of this process, which is created with the first.

    Args:
        parent: The folder for the folder of this process; None: the system's temporary folder.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent
        self._own: tuple[Path, int] | None = None

    def make(self) -> Path:
        """Create a folder."""
        if self._own is not None and not self._own[0].is_dir():  # Somebody has removed it.
            os.close(self._own[1])
            self._own = None
        if self._own is None:
            self._own = _locked(self._where)
        return Path(tempfile.mkdtemp(prefix="policy-", dir=self._own[0]))

    def close(self) -> None:
        """Delete the folders of this process and abandoned ones of dead processes. May be called twice."""
        if self._own is not None:
            (path, handle), self._own = self._own, None
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)
        self.remove_abandoned()

    def remove_abandoned(self) -> None:
        """Delete the folders that dead processes of this user left. Folders that cannot be deleted stay."""
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
    """Create a folder and lock it before it gets the prefix that others look for.

    Returns the path and the locked descriptor.
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
    """Delete a folder of this user if no process has locked it."""
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
