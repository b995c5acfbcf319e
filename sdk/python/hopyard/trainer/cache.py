"""A cache that keeps data in the memory of a training process between runs.

A runner executes the runs of an experiment one after another, so a later run does not need to read the same data again.
The size of the cache is limited; the least recently used entries are removed first.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

_log = logging.getLogger(__name__)

_CGROUP_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")
_DEEPEST: Final = 20


@dataclass(frozen=True, slots=True)
class CacheUse:
    """Contents and statistics of a data cache.

    Attributes:
        entries: Number of cached results.
        size: Their total size in bytes.
        budget: Maximum total size in bytes.
        hits: Number of reads that the cache answered.
        misses: Number of reads for which the file was read.
    """

    entries: int
    size: int
    budget: int
    hits: int
    misses: int


@dataclass(slots=True)
class _Entry:
    stamp: tuple[object, ...]
    value: Any
    size: int


class DataCache:
    """A thread-safe cache of data that was read from files. Results are identified by file and reader function.

    The total size of the results is limited. The least recently used ones are removed first.

    The cache is empty at first.

    Args:
        budget: Maximum total size of the results in bytes; 0: nothing is cached.
    """

    def __init__(self, budget: int) -> None:
        self._entries: OrderedDict[tuple[object, str], _Entry] = OrderedDict()
        self._lock = threading.RLock()
        self._size = self._hits = self._misses = 0
        self._told: set[tuple[object, str]] = set()
        self._budget = 0
        self.budget = budget

    @property
    def budget(self) -> int:
        """The maximum total size in bytes. Setting a smaller value immediately removes results until the others fit."""
        return self._budget

    @budget.setter
    def budget(self, budget: int) -> None:
        if budget < 0:
            raise ValueError(f"a data cache of {budget} bytes; allowed: 0 or more")
        with self._lock:
            self._budget = budget
            self._make_room(0)

    @property
    def use(self) -> CacheUse:
        """The current contents, and the numbers of hits and misses since the cache was created."""
        return CacheUse(len(self._entries), self._size, self._budget, self._hits, self._misses)

    def get(self, path: str | os.PathLike[str], load: Callable[[Path], T]) -> T:
        """Return the cached result of `load(path)` if there is one and the file has not changed since; else call `load` and cache it.

        A change is detected by file size, modification time and inode. A result larger than the maximum size of the cache is
        returned but not cached.

        Args:
            path: A file, or a folder, whose files are treated as one.
            load: Function that reads it. Its result must depend on the path alone, and callers must not modify the
                result. A method is identified by its function, whichever object it is bound to.

        Raises:
            FileNotFoundError: There is no such file. Exceptions from `load` also propagate.
        """
        place = Path(os.path.abspath(path))
        key = (getattr(load, "__func__", load), str(place))
        with self._lock:
            stamp = _stamp(place)
            entry = self._entries.get(key)
            if entry is not None and entry.stamp == stamp:
                self._hits += 1
                self._entries.move_to_end(key)
                return cast(T, entry.value)
            self._misses += 1
            self._drop(key)
            value = load(place)
            self._keep(key, _Entry(stamp, value, size_of(value)))
            return value

    def clear(self) -> None:
        """Remove all cached results."""
        with self._lock:
            self._entries.clear()
            self._size = 0

    def _keep(self, key: tuple[object, str], entry: _Entry) -> None:
        if entry.size > self._budget:
            if key not in self._told:
                self._told.add(key)
                _log.warning(
                    "data of %s take %d bytes and are read again by each run: the data cache has %d "
                    "(resources.per_job.data_cache)",
                    key[1],
                    entry.size,
                    self._budget,
                )
            return
        self._make_room(entry.size)
        self._entries[key] = entry
        self._size += entry.size

    def _make_room(self, size: int) -> None:
        while self._entries and self._size + size > self._budget:
            key = next(iter(self._entries))
            dropped = self._drop(key)
            _log.warning(
                "data of %s (%d bytes) leave the data cache of %d bytes (resources.per_job.data_cache)",
                key[1],
                dropped,
                self._budget,
            )

    def _drop(self, key: tuple[object, str]) -> int:
        entry = self._entries.pop(key, None)
        size = entry.size if entry is not None else 0
        self._size -= size
        return size


def default_budget(memory_limit: int = 0, *, threads: int = 0) -> int:
    """Return the default size in bytes of the data cache of a training process.

    It is a quarter of the run's memory limit. Without a limit, it is half of the process's share of the host memory, where the
    share is proportional to its threads.

    Args:
        memory_limit: Bytes that the run may use; 0: no limit.
        threads: Number of CPU threads of the process; 0: all of the host.
    """
    if memory_limit:
        return memory_limit // 4
    cpus = os.cpu_count() or 1
    return _memory() * min(threads or cpus, cpus) // cpus // 2


def size_of(value: object) -> int:
    """Return the approximate memory size of a value with everything that it refers to, in bytes.

    The sizes of arrays and tensors are exact. An object that is referred to several times counts once.
    """
    return sum(_sizes(value, set(), 0))


def _sizes(value: object, seen: set[int], depth: int) -> Iterator[int]:
    if id(value) in seen or isinstance(value, type | ModuleType) or depth > _DEEPEST:
        return
    seen.add(id(value))
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):  # NumPy, PyTorch, Arrow
        yield size
        return
    usage = getattr(value, "memory_usage", None)
    if callable(usage):  # pandas
        found = usage(deep=True)
        yield int(found.sum() if hasattr(found, "sum") else found)
        return
    yield sys.getsizeof(value, 0)
    if isinstance(value, str | bytes | bytearray | int | float | complex):
        return
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _sizes(key, seen, depth + 1)
            yield from _sizes(item, seen, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _sizes(item, seen, depth + 1)
    else:
        names = [name for kind in type(value).__mro__ for name in _slots(kind)]
        for item in (*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in names)):
            yield from _sizes(item, seen, depth + 1)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _stamp(path: Path) -> tuple[object, ...]:
    """Return a value that differs after the file at `path`, or any file in the folder at `path`, has changed."""
    status = path.stat()
    if not path.is_dir():
        return (status.st_size, status.st_mtime_ns, status.st_ino)
    found: list[tuple[str, int, int, int]] = []
    for folder, _, names in os.walk(path):
        for name in names:
            file = os.path.join(folder, name)
            one = os.stat(file)
            found.append((file, one.st_size, one.st_mtime_ns, one.st_ino))
    return tuple(sorted(found))


def _memory() -> int:
    """Return the bytes of memory that this host, or the container, may use."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
    except OSError:  # Not a Linux container with limits.
        return physical
    return min(physical, int(limit)) if limit.isdecimal() else physical


_cache = DataCache(default_budget())


def data_cache() -> DataCache:
    """Return the data cache of this process."""
    return _cache


def cached(path: str | os.PathLike[str], load: Callable[[Path], T]) -> T:
    """Return `load(path)`, and cache the result in this process's memory for later runs. See `DataCache.get`."""
    return _cache.get(path, load)
