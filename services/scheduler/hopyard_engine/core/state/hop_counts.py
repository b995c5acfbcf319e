"""Counters of snapshot transfers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HopCounts:
    """Transfers of a stream's snapshots and their bytes: between agents (`direct`), from the store (`fetched`) and to the store."""

    direct: int = 0
    direct_bytes: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    stored: int = 0
    stored_bytes: int = 0

    def arrived(self, size: int, *, from_store: bool) -> None:
        """Counts a transfer of `size` bytes that started a run; 0: no transfer was needed."""
        if size and from_store:
            self.fetched, self.fetched_bytes = self.fetched + 1, self.fetched_bytes + size
        elif size:
            self.direct, self.direct_bytes = self.direct + 1, self.direct_bytes + size

    def shipped(self, size: int) -> None:
        """Counts an upload to the store of `size` bytes."""
        self.stored, self.stored_bytes = self.stored + 1, self.stored_bytes + size
