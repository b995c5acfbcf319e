"""Data that stay in the memory of a training process while models come and go.

A runner takes run after run of an experiment, so what one run has read the next one need not read again. What is kept is bounded in
bytes; what was used longest ago leaves first.
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
    """What a cache holds and what it was good for: entries, their bytes, its budget, and how often it was asked."""

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
    """Results of reading files, by file and reader, at most `budget` bytes of them. Safe to use from several threads."""

    def __init__(self, budget: int) -> None:
        """Keep up to `budget` bytes (0 or more; 0 keeps nothing)."""
        self._entries: OrderedDict[tuple[object, str], _Entry] = OrderedDict()
        self._lock = threading.RLock()
        self._size = self._hits = self._misses = 0
        self._told: set[tuple[object, str]] = set()
        self._budget = 0
        self.budget = budget

    @property
    def budget(self) -> int:
        """Bytes it may hold; a smaller one drops what is too much at once."""
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
        """What it holds now, and its hits and misses so far."""
        return CacheUse(len(self._entries), self._size, self._budget, self._hits, self._misses)

    def get(self, path: str | os.PathLike[str], load: Callable[[Path], T]) -> T:
        """What `load` makes of `path`, read again only if the file has changed (by sizes and times) or had to leave.

        Args:
            path: A file, or a folder whose files count together.
            load: Reads it. What it returns depends on the path alone, and whoever gets it does not change it. A method counts
                as that of its class, whichever object it is called on.

        Raises:
            FileNotFoundError: There is no such file; and whatever `load` raises.
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
        """Forget everything."""
        with self._lock:
            self._entries.clear()
            self._size = 0

    def _keep(self, key: tuple[object, str], entry: _Entry) -> None:
        if entry.size > self._budget:
            if key not in self._told:
                self._told.add(key)
                _log.warning(
                    "data of %s take %d bytes and are read anew by each run: the data cache has %d "
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
    """The bytes that a training process keeps of its data where the experiment does not say.

    A quarter of the run's memory limit; without one, half of what belongs to it of the host's memory, by its threads.

    Args:
        memory_limit: Bytes that the run may use; 0: no limit.
        threads: CPU threads that it has; 0: all.
    """
    if memory_limit:
        return memory_limit // 4
    cpus = os.cpu_count() or 1
    return _memory() * min(threads or cpus, cpus) // cpus // 2


def size_of(value: object) -> int:
    """The bytes that a value holds in memory, closely enough for a budget: arrays and tensors exactly, each object once."""
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
    """What tells whether a file, or a folder's files, are the same as before."""
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
    """Bytes of memory that this host, or the container that this is, may use."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = _CGROUP_LIMIT.read_text().strip()
    except OSError:  # no Linux container with limits
        return physical
    return min(physical, int(limit)) if limit.isdecimal() else physical


_cache = DataCache(default_budget())


def data_cache() -> DataCache:
    """The cache of this process."""
    return _cache


def cached(path: str | os.PathLike[str], load: Callable[[Path], T]) -> T:
    """What `load(path)` returns, kept in this process's memory for the runs that follow: see `DataCache.get`."""
    return _cache.get(path, load)
