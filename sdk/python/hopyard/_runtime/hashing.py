"""SHA-256 of bytes on their way, found beside receiving and writing them: on another core, where there is one."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from io import RawIOBase
from itertools import cycle
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

BLOCK: Final = 512 * 1024
"""A good number of bytes to give at a time: many more leave the processor's cache before they are used again."""
_SMALL: Final = 256 * 1024
"""What is shorter is hashed sooner than another thread takes it over."""


class Hashed:
    """The hash of what it is given, one piece behind the other; `size` counts the bytes."""

    def __init__(self) -> None:
        """Nothing was given yet."""
        self.size = 0
        self._hash = hashlib.sha256()
        self._beside: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def update(self, data: ReadableBuffer) -> None:
        """Take what follows. It may be read until the next call: its memory is to hold nothing else before."""
        self._wait()
        length = memoryview(data).nbytes
        self.size += length
        if length < _SMALL:
            self._hash.update(data)
            return
        if self._beside is None:
            self._beside = ThreadPoolExecutor(1, "hash")
        self._last = self._beside.submit(self._hash.update, data)

    def drain(self, source: RawIOBase) -> None:
        """Take all that is left of a stream. Reading what the system has in memory is too little work for two threads."""
        buffer = memoryview(bytearray(_SMALL))
        self._wait()
        while count := source.readinto(buffer):
            self._hash.update(buffer[:count])
            self.size += count

    def hexdigest(self) -> str:
        """The hash of all that was given so far, in 64 lower-case hexadecimal digits."""
        self._wait()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Need no thread any more; safe to call twice."""
        if self._beside is not None:
            self._beside.shutdown(wait=False)

    def __enter__(self) -> Self:
        """It closes itself at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()
            self._last = None


def in_turns() -> cycle[memoryview]:
    """Memory for blocks that are hashed: the one before stays as it is while the next one is filled."""
    return cycle([memoryview(bytearray(BLOCK)) for _ in range(2)])
