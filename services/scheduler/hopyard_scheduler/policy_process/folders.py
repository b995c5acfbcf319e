"""The folder of a scheduler for the files of its policy processes, removed also after `kill -9`.

Each scheduler has one folder, `hopyard-policies-*` in the folder for temporary files, and a lock on it, which the kernel releases when
the process dies. Whoever finds such a folder without a lock removes it. So a folder gets this name only once it is locked.
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
"""Begins the name of a folder that is locked as long as its process lives."""

UNLOCKED: Final = "hopyard-new-policies-"
"""Begins the name of a folder that is not locked yet."""

_LONGEST_UNLOCKED_SECONDS: Final = 3600.0
"""A folder that has had no lock for so long never gets one: its process died between two system calls."""


class PolicyFolders:
    """Folders for policy processes, all in one folder of this process, which is made with the first.

    Args:
        parent: Where it is; None: in the folder for temporary files.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent
        self._own: tuple[Path, int] | None = None

    def make(self) -> Path:
        """Make a folder."""
        if self._own is None:
            self._own = _locked(self._where)
        return Path(tempfile.mkdtemp(prefix="policy-", dir=self._own[0]))

    def close(self) -> None:
        """Remove the folders of this process, and those of processes that died. Safe twice."""
        if self._own is not None:
            (path, handle), self._own = self._own, None
            shutil.rmtree(path, ignore_errors=True)
            os.close(handle)
        self.remove_abandoned()

    def remove_abandoned(self) -> None:
        """Remove the folders that processes of this user left when they died. What cannot be removed stays."""
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
    """A new folder with its lock. It is locked before it has a name that others look for."""
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
    """Remove a folder of this user that nobody has locked."""
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
