"""Owners of blobs: a blob is deleted when it has no owner left. An owner is the id of a stream, or "bundle".

The owner "bundle" owns the code bundles, which experiments share.

Experiments with the same training have byte-identical snapshots, which are one blob. The end of one experiment must not delete the
snapshots of another.
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
from hopyard_appstat.database.deletion import BlobTotals
from hopyard_appstat.database.store import Store
from hopyard_appstat.pagination import Page, PageRequest
from hopyard_appstat.rows import Row

_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The result of a sweep, which deletes incomplete uploads and blobs that are not in the index.

    Attributes:
        partials: Number of files of incomplete uploads.
        partial_bytes: Total size of these files in bytes.
        unknown: Number of blobs that are not in the index.
        unknown_bytes: Total size of these blobs in bytes.
        unknown_kept: True: these blobs were not deleted, because other programs may use the same store.
    """

    partials: int = 0
    partial_bytes: int = 0
    unknown: int = 0
    unknown_bytes: int = 0
    unknown_kept: bool = False


class OwnedBlobs:
    """The blob store together with the index of blobs, which records the owners of each blob.

    An owner is a text. For `put` and `delete`, the empty text is an owner like any other; for `has`, it means that no owner is added.

    Args:
        store: The database, which contains the index.
        blobs: The blob store, which contains the bytes.
        alone: Whether no other program stores blobs in the same place. False: `sweep` keeps blobs that are not in the index, because
            they may belong to another program, unless its argument `foreign` is True.
        wall_clock: Returns seconds since the Unix epoch.
    """

    def __init__(
        self, store: Store, blobs: BlobStore, *, alone: bool = True, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._alone = alone
        self._wall_clock = wall_clock
        # Held while a blob gets an owner, and from the decision to delete a blob until its deletion.
        self._lock = asyncio.Lock()

    async def put(self, sha256: str, owner: str, chunks: AsyncIterator[bytes]) -> int:
        """Store a blob for an owner, and return its size in bytes.

        Args:
            sha256: Hash of the blob.
            owner: The owner to add.
            chunks: The bytes of the blob; not read if the blob is stored already.

        Raises:
            InvalidInput: `sha256` is not 64 digits of lower-case hex.
            DataLoss: The bytes have another hash.
            Exhausted: The blob is too large, or the disk is full.
            Aborted: The blob was deleted concurrently; repeat the call.
        """
        size = await self._blobs.put(sha256, chunks)
        async with self._lock:
            if await self._blobs.size(sha256) is None:
                raise Aborted(f"blob {sha256} was deleted while it was put; put it again")
            await self._store.own_blobs(owner, {sha256: size})
        return size

    def get(self, sha256: str) -> AsyncGenerator[bytes]:
        """Yield the bytes of a blob. Raise InvalidInput, NotFound or DataLoss as `BlobStore.get` does."""
        return self._blobs.get(sha256)

    async def has(self, hashes: Sequence[str], owner: str, *, sizes_only: bool = False) -> list[str]:
        """Return those of the hashes whose blobs are stored. Make `owner` an owner of these blobs.

        Blobs that get an owner are verified, because the caller will not send its copies; a damaged blob is deleted and not returned.
        A blob is read completely if it was not verified since the start. A call that is cancelled and repeated joins the verification
        in progress.

        If `owner` is empty, no owner is added and nothing changes; a blob with another size than in the index is then not returned.

        Args:
            hashes: Hashes of the blobs.
            owner: The owner to add; empty: none.
            sizes_only: Whether blobs that get an owner are not verified: only their sizes are compared with the index.

        Raises:
            InvalidInput: A hash is not 64 digits of lower-case hex.
        """
        if owner and not sizes_only:  # Without the lock, because reading large blobs takes long.
            hashes = [one for one in hashes if await self._blobs.intact(one) is not None]
        else:
            hashes = await self._with_size(hashes)
        async with self._lock:
            sizes = {one: size for one in hashes if (size := await self._blobs.size(one)) is not None}
            if owner and sizes:
                await self._store.own_blobs(owner, sizes)
        return list(sizes)

    async def owned(self, hashes: Sequence[str], owner: str) -> list[str]:
        """Return those of the hashes whose blobs are stored and have the owner `owner`. Change nothing."""
        known = await self._store.owned_blobs(owner, tuple(hashes))
        return await self._with_size([one for one in hashes if one in known])

    async def _with_size(self, hashes: Sequence[str]) -> list[str]:
        """Return those of the hashes whose blobs are stored and have the size that the index records, if it has them."""
        recorded = await self._store.blob_sizes(tuple(hashes))
        sizes = {one: await self._blobs.size(one) for one in hashes}
        return [one for one, size in sizes.items() if size is not None and size == recorded.get(one, size)]

    async def delete(self, hashes: Sequence[str], owner: str, unwanted_seconds: float = 0.0) -> list[str]:
        """Remove an owner from blobs, delete the blobs that have no owner left, and return the hashes of the deleted ones.

        Args:
            hashes: Hashes of the blobs.
            owner: The owner to remove.
            unwanted_seconds: Blobs that an owner stored, or requested by `has`, less than this number of seconds ago stay unchanged
                and keep the owner; 0: no blob is excepted.

        Raises:
            InvalidInput: A hash is not 64 digits of lower-case hex; nothing is changed.
        """
        async with self._lock:
            for sha256 in hashes:
                await self._blobs.size(sha256)  # Raises for an invalid hash before anything changes.
            orphans = await self._store.disown_blobs(owner, tuple(hashes), unwanted_seconds)
            for sha256 in orphans:
                await self._blobs.delete(sha256)
        return list(orphans)

    async def release(self, owner: str, hashes: Sequence[str] = ()) -> BlobTotals:
        """Remove an owner from its blobs, and delete those that have no owner left. A call that was interrupted can be repeated.

        The bytes of a blob are deleted before its row in the index, so that a crash leaves no bytes without a row.

        Args:
            owner: The owner to remove. An owner without blobs is no error.
            hashes: Hashes of the blobs from which the owner is removed; empty: all its blobs.

        Returns:
            Number and bytes of the blobs that were deleted (`own`), and of those that stay because they have other owners (`shared`).
        """
        async with self._lock:
            own, shared = await self._store.blobs_of_owner(owner, tuple(hashes))
            for sha256 in own:
                await self._blobs.delete(sha256)
            names = [*own, *shared]
            for start in range(0, len(names), _AT_ONCE):
                await self._store.disown_blobs(owner, tuple(names[start : start + _AT_ONCE]))
        return BlobTotals(len(own), sum(own.values()), len(shared), sum(shared.values()))

    async def list(self, paging: PageRequest) -> Page[Row]:
        """Return a page of the index of blobs, ordered by hash.

        Besides the hash, the size and the owners of a blob, its row has `unwanted_seconds`: the seconds since an owner last stored the
        blob or requested it by `has`.
        """
        page, now = await self._store.list_blobs(paging), self._wall_clock()
        rows = tuple({**row, "unwanted_seconds": max(now - row["created_at"], 0.0)} for row in page.items)
        return Page(rows, page.next_token)

    async def sweep(self, *, dry_run: bool, older_than_seconds: float, foreign: bool) -> SweepResult:
        """Delete files of incomplete uploads, and blobs that are not in the index; return how many.

        Args:
            dry_run: Whether to count them only, and delete nothing.
            older_than_seconds: Minimum age in seconds of what is deleted from the store; younger objects may belong to an upload in
                progress. It does not apply to the partial files of killed processes in the folder for incoming blobs.
            foreign: Whether to delete blobs that are not in the index even if other programs may use the same store.
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
        return SweepResult(
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
