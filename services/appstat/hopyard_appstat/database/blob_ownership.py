"""Owners of blobs: a blob is kept while it has an owner.

Experiments with the same training have byte-identical snapshots under one hash; the end of one experiment must not
delete the snapshots of another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hopyard.errors import Aborted
from hopyard_appstat.blobs.backends import StoredObject
from hopyard_appstat.blobs.store import BlobStore
from hopyard_appstat.database.store import Store
from hopyard_appstat.pagination import Page, Paging
from hopyard_appstat.rows import Row

_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of a sweep for data that is not in the index.

    Attributes:
        partials: Number of files of incomplete uploads.
        partial_bytes: Size of these files in bytes.
        unknown: Number of blobs that are not in the index.
        unknown_bytes: Size of these blobs in bytes.
        unknown_kept: Whether these blobs were kept because others may use the same store.
    """

    partials: int = 0
    partial_bytes: int = 0
    unknown: int = 0
    unknown_bytes: int = 0
    unknown_kept: bool = False


class OwnedBlobs:
    """The blob store with the index of blob owners. The empty string is a valid owner.

    Args:
        store: Contains the index.
        blobs: Contains the bytes.
        alone: Whether no other program keeps blobs in the same store.
        wall_clock: Returns seconds since the epoch.
    """

    def __init__(
        self, store: Store, blobs: BlobStore, *, alone: bool = True, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._alone = alone
        self._wall_clock = wall_clock
        # No owner may be added between the decision to delete a blob and its deletion.
        self._lock = asyncio.Lock()

    async def put(self, sha256: str, owner: str, chunks: AsyncIterator[bytes]) -> int:
        """Stores a blob for an owner and returns its size in bytes.

        Raises:
            InvalidInput: `sha256` is not 64 digits of lower-case hex.
            DataLoss: The bytes have another hash.
            Exhausted: The blob is too large, or the disk is full.
            Aborted: The blob was deleted concurrently; put it again.
        """
        size = await self._blobs.put(sha256, chunks)
        async with self._lock:
            if await self._blobs.size(sha256) is None:
                raise Aborted(f"blob {sha256} was deleted while it was put; put it again")
            await self._store.own_blobs(owner, {sha256: size})
        return size

    def get(self, sha256: str) -> AsyncGenerator[bytes]:
        """Yields the bytes of a blob; see `BlobStore.get`."""
        return self._blobs.get(sha256)

    async def has(self, hashes: Sequence[str], owner: str) -> list[str]:
        """Returns those of the hashes whose blobs are stored, and adds `owner` to their owners unless it is empty."""
        async with self._lock:
            sizes = {one: size for one in hashes if (size := await self._blobs.size(one)) is not None}
            if owner and sizes:
                await self._store.own_blobs(owner, sizes)
        return list(sizes)

    async def owned(self, hashes: Sequence[str], owner: str) -> list[str]:
        """Returns those of the hashes whose blobs are stored and belong to `owner`. Changes nothing."""
        known = await self._store.owned_blobs(owner, tuple(hashes))
        return [one for one in hashes if one in known and await self._blobs.size(one) is not None]

    async def delete(self, hashes: Sequence[str], owner: str, unwanted_seconds: float = 0.0) -> list[str]:
        """Removes an owner from blobs, deletes those without owners, and returns the deleted hashes.

        Blobs that an owner put or asked for within the last `unwanted_seconds` are kept.
        """
        async with self._lock:
            for sha256 in hashes:
                await self._blobs.size(sha256)  # Raises for an invalid hash before anything changes.
            orphans = await self._store.disown_blobs(owner, tuple(hashes), unwanted_seconds)
            for sha256 in orphans:
                await self._blobs.delete(sha256)
        return list(orphans)

    async def list(self, paging: Paging) -> Page[Row]:
        """Returns a page of the blobs in the index by hash, each with the seconds since an owner last put it or asked for it."""
        page, now = await self._store.list_blobs(paging), self._wall_clock()
        rows = tuple({**row, "unwanted_seconds": max(now - row["created_at"], 0.0)} for row in page.items)
        return Page(rows, page.next_token)

    async def sweep(self, *, dry_run: bool, older_than_seconds: float, foreign: bool) -> Swept:
        """Deletes files of incomplete uploads and blobs that are not in the index.

        Args:
            dry_run: Only count, delete nothing.
            older_than_seconds: Minimum age of what is deleted in the store; younger data may belong to a pending
                upload.
            foreign: Delete blobs that are not in the index even if others may use the same store.
        """
        partials, partial_bytes = await self._blobs.clear_partials(dry_run=dry_run)
        before = self._wall_clock() - older_than_seconds
        old = [one for one in await self._blobs.survey() if one.modified_at <= before]
        parts = [one for one in old if not one.sha256]
        ours = self._alone or foreign
        unknown = []
        for one in await self._unknown([one for one in old if one.sha256]):
            async with self._lock:  # Without the lock, a blob being put or deleted may be stored but not in the index.
                known = await self._store.known_blobs((one.sha256,))
                if known or await self._blobs.size(one.sha256) is None:
                    continue
                if ours and not dry_run:
                    await self._blobs.remove(one)
            unknown.append(one)
        if not dry_run:
            for one in parts:
                await self._blobs.remove(one)
        return Swept(
            partials=partials + len(parts),
            partial_bytes=partial_bytes + sum(one.size for one in parts),
            unknown=len(unknown),
            unknown_bytes=sum(one.size for one in unknown),
            unknown_kept=bool(unknown) and not ours,
        )

    async def _unknown(self, found: Sequence[StoredObject]) -> Sequence[StoredObject]:
        known: set[str] = set()
        for start in range(0, len(found), _AT_ONCE):
            known |= await self._store.known_blobs(tuple(one.sha256 for one in found[start : start + _AT_ONCE]))
        return [one for one in found if one.sha256 not in known]
