"""Computes size, hash and number of examples of files, and caches the results until a file changes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from hopyard._runtime.datasets.reader import Content, Stamp, content, stamp
from hopyard.errors import Aborted, InvalidInput

_log = logging.getLogger(__name__)

AT_ONCE: Final = 2
"""Maximum number of paths that are read at the same time; more would only compete for the disk."""

MAX_KNOWN: Final = 20_000
"""Maximum number of paths in the cache; the oldest results are dropped."""


class Inspector:
    """Reads files and folders in threads, and caches their sizes, hashes and numbers of (training) examples.

    Args:
        memory: The file that stores the cache, so that the next agent on this data folder can use it. A missing file is an empty cache.
    """

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._known: dict[str, tuple[Stamp, Content]] = _remembered(memory)
        self._locks: dict[str, asyncio.Lock] = {}
        self._reading = asyncio.Semaphore(AT_ONCE)
        self._writing = asyncio.Lock()
        self._new = False
        self._stopped = False

    def stop(self) -> None:
        """Abort the reads in progress: their calls of `look` raise OSError, and so do later calls that would read."""
        self._stopped = True

    async def look(self, path: Path) -> Content:
        """Return size, hash and number of examples of a file, or of a folder with all its subfolders.

        The result comes from the cache if names, sizes, modification times and inodes of the files are unchanged.

        Raises:
            NotFound: The path does not exist.
            InvalidInput: The path is not absolute, or is neither a regular file nor a non-empty folder tree of regular files.
            Aborted: The content changed while it was read.
            OSError: The content cannot be read, or `stop` was called.
        """
        if not path.is_absolute():
            raise InvalidInput(f"{path}: needed is an absolute path")
        async with self._locks.setdefault(str(path), asyncio.Lock()):
            now = await asyncio.to_thread(stamp, path)
            known = self._known.get(str(path))
            if known is not None and known[0] == now:
                return known[1]
            async with self._reading:
                found = await asyncio.to_thread(content, path, lambda: self._stopped)
                if await asyncio.to_thread(stamp, path) != now:
                    raise Aborted(f"{path}: it changes while it is read; wait until it is written")
            self._known.pop(str(path), None)
            self._known[str(path)] = (now, found)
            while len(self._known) > MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._new = True
        async with self._writing:
            if self._new:  # Otherwise a concurrent call has written the cache already.
                self._new = False
                await asyncio.to_thread(self._remember, dict(self._known))
        return found

    def _remember(self, known: dict[str, tuple[Stamp, Content]]) -> None:
        """Save the cache `known` in the file `memory` for the next agent.

        An error is only logged, because the next agent can read the paths again.
        """
        rows = {path: [was, found.size, found.sha256, found.examples] for path, (was, found) in known.items()}
        partial = self._memory.with_name(f".{self._memory.name}.{os.getpid()}.partial")
        try:
            partial.write_text(json.dumps(rows), encoding="utf-8")
            partial.replace(self._memory)
        except OSError as error:
            _log.warning("%s: what was read is not remembered: %s", self._memory, error)


def _remembered(memory: Path) -> dict[str, tuple[Stamp, Content]]:
    with suppress(FileNotFoundError):
        try:
            return {
                path: (
                    tuple((str(name), int(size), int(changed), int(inode)) for name, size, changed, inode in was),
                    Content(int(size), str(sha256), None if examples is None else int(examples)),
                )
                for path, (was, size, sha256, examples) in json.loads(memory.read_text(encoding="utf-8")).items()
            }
        except (OSError, ValueError, TypeError, AttributeError) as error:
            if isinstance(error, FileNotFoundError):
                raise
            _log.warning("%s: what was read before is read again: %s", memory, error)
    return {}
