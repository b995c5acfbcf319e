"""SHA-256 of a stream of bytes, computed in a second thread while the data is received and written."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from io import RawIOBase
from itertools import cycle
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

BLOCK: Final = 512 * 1024
"""Recommended bytes per `update`; larger blocks leave the CPU's cache before they are used again."""
_SMALL: Final = 256 * 1024
"""Minimum bytes that are hashed in the second thread; below, the hand-over takes longer than the hashing."""


class StreamingHash:
    """A SHA-256 hash that is computed incrementally; `size` is the number of bytes hashed so far. Use it as a context manager.

    A new object has the hash of no data.
    """

    def __init__(self) -> None:
        self.size = 0
        self._hash = hashlib.sha256()
        self._beside: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None

    def update(self, data: ReadableBuffer) -> None:
        """Add data to the hash, in a second thread if it is large.

        The caller must not change `data` until the next call of `update`, `drain` or `hexdigest`, because the thread may still read it.
        """
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
        """Read `source` to its end and add its bytes to the hash, in the calling thread.

        A second thread would not help, because reading cached data takes little time.
        """
        buffer = memoryview(bytearray(_SMALL))
        self._wait()
        while count := source.readinto(buffer):
            self._hash.update(buffer[:count])
            self.size += count

    def hexdigest(self) -> str:
        """Return the hash of all data so far, as 64 lower-case hexadecimal digits."""
        self._wait()
        return self._hash.hexdigest()

    def close(self) -> None:
        """End the second thread; safe to call twice."""
        if self._beside is not None:
            self._beside.shutdown(wait=False)

    def __enter__(self) -> Self:
        """Return this object, which is closed when the context is left."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the object."""
        self.close()

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()
            self._last = None


def in_turns() -> cycle[memoryview]:
    """Return an endless iterator that alternates between two buffers of `BLOCK` bytes.

    The caller can fill one buffer while the other is hashed.
    """
    return cycle([memoryview(bytearray(BLOCK)) for _ in range(2)])
