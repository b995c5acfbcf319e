"""Snapshots of processes that are written to memory first, so that the slot of the process is free earlier, and then copied to disk."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import stat
import uuid
from contextlib import suppress
from pathlib import Path

from hopyard._runtime.criu.image_storage import MEMORY_SUFFIX

_log = logging.getLogger(__name__)


class InMemory:
    """Tracks the snapshots that are still in memory.

    Each is a file in a file system in memory, with a symbolic link to it in the snapshot folder. Such a file survives the end of the
    agent, but not a restart of the computer.

    The constructor copies the files that an earlier agent left in memory to disk. If such a copy fails, the link is deleted, and the
    snapshot is lost.

    Args:
        folder: The snapshot folder.
    """

    def __init__(self, folder: Path) -> None:
        self._moves: dict[Path, asyncio.Task[None]] = {}
        for path in folder.iterdir():
            if path.is_symlink() and not path.name.startswith("."):
                memory = path.readlink()
                if memory.suffix != MEMORY_SUFFIX:
                    continue
                try:
                    _copied(memory, path).replace(path)
                except OSError as error:
                    _log.error("snapshot %s was in memory only and is lost: %s", path.name, error)
                    path.unlink()

    def leave(self, path: Path) -> None:
        """Start to copy the snapshot at `path` to disk, if it is in memory. The copy then replaces the link.

        If the copy fails, the error is logged, and the snapshot stays in memory.
        """
        if _place(path) is not None and path not in self._moves:
            self._moves[path] = asyncio.create_task(self._move(path))

    def has(self, path: Path) -> bool:
        """Return whether the snapshot at `path` is a link to a file in memory. Any other link is damage."""
        return _place(path) is not None

    def forget(self, path: Path) -> None:
        """Delete the file in memory to which the link at `path` refers, if it is such a link. The caller deletes the link."""
        if (memory := _place(path)) is not None:
            memory.unlink(missing_ok=True)

    async def wait(self) -> None:
        """Wait until all copies in progress have ended."""
        await asyncio.gather(*self._moves.values())

    async def _move(self, path: Path) -> None:
        try:
            # If the snapshot was taken again during the copy, the link refers to another file in memory.
            while (memory := _place(path)) is not None:
                _settle(await asyncio.to_thread(_copied, memory, path), memory, path)
        except OSError as error:
            if _place(path) is not None:  # Otherwise it was deleted meanwhile.
                _log.error("snapshot %s cannot be brought from memory to the disk: %s", path.name, error)
        finally:
            del self._moves[path]


def _place(path: Path) -> Path | None:
    """Return the file in memory to which the snapshot at `path` is a link; None: it is not in memory.

    A link to anything but a regular file with the suffix of these files was made by somebody else: its target must not be deleted.
    """
    with suppress(OSError):
        memory = path.readlink()
        if memory.is_absolute() and memory.suffix == MEMORY_SUFFIX and stat.S_ISREG(os.lstat(memory).st_mode):
            return memory
    return None


def _settle(partial: Path, memory: Path, path: Path) -> None:
    """Replace the link at `path` by its copy on disk and delete the file in memory.

    If the link refers to another file meanwhile, discard the copy instead.

    Args:
        partial: The copy on disk.
        memory: The file in memory that was copied.
        path: The link.
    """
    if _place(path) == memory:
        shutil.copymode(memory, partial)  # The mode may have changed meanwhile.
        partial.replace(path)
        memory.unlink()
    else:
        partial.unlink()


def _copied(memory: Path, path: Path) -> Path:
    """Copy the file `memory` to a hidden file in the folder of `path`; return the path of the copy."""
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        shutil.copy2(memory, partial)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return partial
