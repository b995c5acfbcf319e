"""Temporary folders for CRIU's images during a dump or restore: in memory within a budget, else on disk."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

MEMORY_SUFFIX: Final = ".packed"
"""Suffix of the files in memory that outlive the job, to which links in the snapshot folder refer."""

_MARGIN: Final = 1.2
"""Factor by which an image may exceed its expected size."""


class ImageFolders:
    """Creates and deletes the temporary folders for CRIU's images of one job.

    Args:
        memory: A folder on a tmpfs, which may be shared with other jobs; None: use only the disk.
        budget: Maximum bytes of all files in `memory` together, including those of other jobs.
        disk: A folder on a disk.
    """

    def __init__(self, memory: Path | None, budget: int, disk: Path) -> None:
        self._memory = memory
        self._budget = budget
        self._disk = disk
        self._taken: set[Path] = set()

    def choices(self, size: int) -> Iterator[Path]:
        """Yield new empty folders for images of about `size` bytes: first one in `memory` if it has space, then one in `disk`.

        The caller tries them in this order and must free each with `free`.
        """
        if self._memory is not None and self._fits(self._memory, size):
            yield self._take(self._memory)
        yield self._take(self._disk)

    def lasting(self, size: int) -> Path | None:
        """Return a new path in the folder `memory` for a file of at most `size` bytes; None without this folder or space in it.

        `close` does not delete the file.
        """
        return (
            self._memory / f"{uuid.uuid4().hex}{MEMORY_SUFFIX}"
            if self._memory and self._fits(self._memory, size)
            else None
        )

    def free(self, folder: Path) -> None:
        """Delete a folder that `choices` yielded, with its contents."""
        shutil.rmtree(folder, ignore_errors=True)
        self._taken.discard(folder)

    def close(self) -> None:
        """Delete all folders that were not freed."""
        for folder in list(self._taken):
            self.free(folder)

    def _take(self, place: Path) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="images.", dir=place))
        self._taken.add(folder)
        return folder

    def _fits(self, memory: Path, size: int) -> bool:
        try:
            free = shutil.disk_usage(memory).free
            return size * _MARGIN <= min(free, self._budget - _held(memory))
        except OSError:
            return False


def _held(folder: Path) -> int:
    held = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):  # Another job has just deleted its image.
                held += os.lstat(os.path.join(place, name)).st_size
    return held
