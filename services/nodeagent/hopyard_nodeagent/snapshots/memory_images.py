"""Snapshots that are packed in memory, so that a machine becomes free before a disk has them, and that follow to the disk behind."""

from __future__ import annotations

import asyncio
import logging
import shutil
import uuid
from pathlib import Path

_log = logging.getLogger(__name__)


class InMemory:
    """The links in a snapshot folder, each to a file in memory. It outlives the agent, not the computer."""

    def __init__(self, folder: Path) -> None:
        """Bring to the disk what an earlier agent has left; what memory does not have any more is gone."""
        self._moves: dict[Path, asyncio.Task[None]] = {}
        for path in folder.iterdir():
            if path.is_symlink() and not path.name.startswith("."):
                memory = path.readlink()
                try:
                    _copied(memory, path).replace(path)
                except OSError as error:
                    _log.error("snapshot %s was in memory only and is lost: %s", path.name, error)
                    path.unlink()

    def leave(self, path: Path) -> None:
        """Begin to bring a snapshot to the disk, if it is in memory. Where that fails it stays there while the agent lives."""
        if path.is_symlink() and path not in self._moves:
            self._moves[path] = asyncio.create_task(self._move(path))

    def forget(self, path: Path) -> None:
        """A snapshot is about to be deleted: what memory has of it goes."""
        if path.is_symlink():
            path.readlink().unlink(missing_ok=True)

    async def wait(self) -> None:
        """Wait for what was begun."""
        await asyncio.gather(*self._moves.values())

    async def _move(self, path: Path) -> None:
        try:
            # Taken anew meanwhile, it lies somewhere else in memory.
            while (memory := _place(path)) is not None:
                _settle(await asyncio.to_thread(_copied, memory, path), memory, path)
        except OSError as error:
            if _place(path) is not None:  # Else it was forgotten meanwhile.
                _log.error("snapshot %s cannot be brought from memory to the disk: %s", path.name, error)
        finally:
            del self._moves[path]


def _place(path: Path) -> Path | None:
    """Where in memory a snapshot lies; None: it does not."""
    return path.readlink() if path.is_symlink() else None


def _settle(partial: Path, memory: Path, path: Path) -> None:
    """Put a copy in the place of the link to what it was made of; if that has changed it is of no use."""
    if _place(path) == memory:
        shutil.copymode(memory, partial)  # It may have been marked meanwhile.
        partial.replace(path)
        memory.unlink()
    else:
        partial.unlink()


def _copied(memory: Path, path: Path) -> Path:
    """A copy on the disk, under a hidden name."""
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        shutil.copy2(memory, partial)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return partial
