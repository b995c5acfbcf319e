"""Damages files and folders as disks, crashes and people do."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Harmed = TypeVar("Harmed")


def flip(file: Path, at: float = 0.5) -> None:
    """Invert one bit of a file, also of one that is read-only.

    Args:
        file: The file.
        at: The place in the file, from 0 to below 1.
    """
    content = bytearray(file.read_bytes())
    content[int(len(content) * at)] ^= 1
    file.chmod(0o600)
    file.write_bytes(content)


def overwrite(file: Path, begin: int, size: int) -> None:
    """Write `size` random bytes, always the same ones, from the byte `begin` on."""
    with file.open("r+b") as opened:
        opened.seek(begin)
        opened.write(random.Random(size).randbytes(size))


def replace_by_link(path: Path, elsewhere: Path) -> None:
    """Move a file or folder elsewhere, and leave a link to it in its place."""
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def replace_by_pipe(path: Path) -> None:
    """Replace a file or folder by a pipe, which blocks those who open it."""
    _delete(path)
    os.mkfifo(path)


def replace_by_folder(path: Path) -> None:
    """Replace a file by a folder with a file in it, which `Path.unlink` and `Path.rmdir` cannot delete."""
    _delete(path)
    path.mkdir()
    (path / "x").touch()


def in_turn(*steps: Callable[[Harmed], object]) -> Callable[[Harmed], None]:
    """Return a function that calls all steps, one after the other."""

    def harm(it: Harmed) -> None:
        for step in steps:
            step(it)

    return harm


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
