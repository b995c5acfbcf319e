"""Blobs and who needs them: bytes live while they have an owner.

Two experiments that train the same have byte-identical snapshots under one hash; the end of one must not take the other's.
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
    """What a sweep found that no index knows.

    Attributes:
        partials: Files that uploads have left.
        partial_bytes: Their bytes.
        unknown: Blobs that the index does not know.
        unknown_bytes: Their bytes.
        unknown_kept: Whether those were left alone, because the store may be others' too.
    """

    partials: int = 0
    partial_bytes: int = 0
    unknown: int = 0
    unknown_bytes: int = 0
    unknown_kept: bool = False


class OwnedBlobs:
    """The blob store with its index of owners. An empty owner is an owner like any other.

    Args:
        store: Holds the index.
        blobs: Holds the bytes.
        alone: Whether nobody else keeps blobs in the same place.
        wall_clock: Seconds since the epoch.
    """

    def __init__(
        self, store: Store, blobs: BlobStore, *, alone: bool = True, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._alone = alone
        self._wall_clock = wall_clock
        # Between "nobody needs it" and its deletion nobody may begin to need it.
        self._lock = asyncio.Lock()

    async def put(self, sha256: str, owner: str, chunks: AsyncIterator[bytes]) -> int:
        """Takes a blob for an owner; answers its size.

        Raises:
            DataLoss: The bytes do not have that hash.
            Aborted: The blob was there and was deleted at the same moment; put it again.
        """
        size = await self._blobs.put(sha256, chunks)
        async with self._lock:
            if await self._blobs.size(sha256) is None:
                raise Aborted(f"blob {sha256} was deleted while it was put; put it again")
            await self._store.own_blobs(owner, {sha256: size})
        return size

    def get(self, sha256: str) -> AsyncGenerator[bytes]:
        """The bytes of a blob; see `BlobStore.get`."""
        return self._blobs.get(sha256)

    async def has(self, hashes: Sequence[str], owner: str) -> list[str]:
        """Those of the hashes that are there; a named owner owns them from now on."""
        async with self._lock:
            sizes = {one: size for one in hashes if (size := await self._blobs.size(one)) is not None}
            if owner and sizes:
                await self._store.own_blobs(owner, sizes)
        return list(sizes)

    async def owned(self, hashes: Sequence[str], owner: str) -> list[str]:
        """Those of the hashes that are there and that an owner owns; nothing changes."""
        known = await self._store.owned_blobs(owner, tuple(hashes))
        return [one for one in hashes if one in known and await self._blobs.size(one) is not None]

    async def delete(self, hashes: Sequence[str], owner: str, unwanted_seconds: float = 0.0) -> list[str]:
        """Ends an owner's need, and deletes what nobody needs; answers what was deleted.

        What was put, or asked for by an owner, within `unwanted_seconds` is left alone.
        """
        async with self._lock:
            for sha256 in hashes:
                await self._blobs.size(sha256)  # refuses what is no hash before anything changes
            orphans = await self._store.disown_blobs(owner, tuple(hashes), unwanted_seconds)
            for sha256 in orphans:
                await self._blobs.delete(sha256)
        return list(orphans)

    async def list(self, paging: Paging) -> Page[Row]:
        """A page of the blobs that somebody owns, by hash, with the seconds since each was wanted last."""
        page, now = await self._store.list_blobs(paging), self._wall_clock()
        rows = tuple({**row, "unwanted_seconds": max(now - row["created_at"], 0.0)} for row in page.items)
        return Page(rows, page.next_token)

    async def sweep(self, *, dry_run: bool, older_than_seconds: float, foreign: bool) -> Swept:
        """Deletes what uploads that were cut have left, and blobs that the index does not know.

        Args:
            dry_run: Only look.
            older_than_seconds: What was written since stays: it may be under way.
            foreign: Delete unknown blobs also where others may keep theirs.
        """
        partials, partial_bytes = await self._blobs.clear_partials(dry_run=dry_run)
        before = self._wall_clock() - older_than_seconds
        old = [one for one in await self._blobs.survey() if one.modified_at <= before]
        parts = [one for one in old if not one.sha256]
        ours = self._alone or foreign
        unknown = []
        for one in await self._unknown([one for one in old if one.sha256]):
            async with self._lock:  # Bytes are there a moment before the index knows them, and a moment after.
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
