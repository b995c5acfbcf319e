"""Snapshots that are packed in memory, to free the slot early, and then copied to disk."""

from __future__ import annotations

import asyncio
import logging
import shutil
import uuid
from pathlib import Path

_log = logging.getLogger(__name__)


class InMemory:
    """Symbolic links in a snapshot folder to files in memory. They survive the agent, but not a restart of the computer."""

    def __init__(self, folder: Path) -> None:
        """Copy the files of an earlier agent to disk; links to missing files are deleted."""
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
        """Start copying a snapshot to disk, if it is in memory. If that fails, it stays in memory while the agent lives."""
        if path.is_symlink() and path not in self._moves:
            self._moves[path] = asyncio.create_task(self._move(path))

    def forget(self, path: Path) -> None:
        """Delete the file in memory of a snapshot that is about to be deleted."""
        if path.is_symlink():
            path.readlink().unlink(missing_ok=True)

    async def wait(self) -> None:
        """Wait for running copies."""
        await asyncio.gather(*self._moves.values())

    async def _move(self, path: Path) -> None:
        try:
            # If it was taken again meanwhile, it is at another place in memory.
            while (memory := _place(path)) is not None:
                _settle(await asyncio.to_thread(_copied, memory, path), memory, path)
        except OSError as error:
            if _place(path) is not None:  # Otherwise it was deleted meanwhile.
                _log.error("snapshot %s cannot be brought from memory to the disk: %s", path.name, error)
        finally:
            del self._moves[path]


def _place(path: Path) -> Path | None:
    """Return the place of a snapshot in memory; None: it is not in memory."""
    return path.readlink() if path.is_symlink() else None


def _settle(partial: Path, memory: Path, path: Path) -> None:
    """Replace the link by the copy; discard the copy if the link has changed."""
    if _place(path) == memory:
        shutil.copymode(memory, partial)  # The mode may have changed meanwhile.
        partial.replace(path)
        memory.unlink()
    else:
        partial.unlink()


def _copied(memory: Path, path: Path) -> Path:
    """Copy a file to disk, under a hidden name."""
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        shutil.copy2(memory, partial)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return partial
