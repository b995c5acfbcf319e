"""Counters of snapshot transfers between nodes and to and from the store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class HopCounts:
    """Counts the transfers of a stream's snapshots and their bytes.

    Attributes:
        direct: Number of transfers from one agent to another.
        direct_bytes: Bytes of these transfers.
        fetched: Number of transfers from the store to a node.
        fetched_bytes: Bytes of these transfers.
        stored: Number of uploads to the store.
        stored_bytes: Bytes of these uploads.
    """

    direct: int = 0
    direct_bytes: int = 0
    fetched: int = 0
    fetched_bytes: int = 0
    stored: int = 0
    stored_bytes: int = 0

    def arrived(self, size: int, *, from_store: bool) -> None:
        """Count the transfer of the snapshot that a run starts from.

        Args:
            size: Transferred bytes; 0: no transfer was needed, and nothing is counted.
            from_store: Whether the snapshot came from the store; else it came from another agent.
        """
        if size and from_store:
            self.fetched, self.fetched_bytes = self.fetched + 1, self.fetched_bytes + size
        elif size:
            self.direct, self.direct_bytes = self.direct + 1, self.direct_bytes + size

    def shipped(self, size: int) -> None:
        """Count an upload of `size` bytes to the store."""
        self.stored, self.stored_bytes = self.stored + 1, self.stored_bytes + size
