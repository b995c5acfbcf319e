"""Blobs and who needs them: bytes live while they have an owner.

Two experiments that train the same have byte-identical snapshots under one hash; the end of one must not take the other's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence

from hopyard.errors import Aborted
from hopyard_appstat.blobs import BlobStore
from hopyard_appstat.store import Store


class OwnedBlobs:
    """The blob store with its index of owners. An empty owner is an owner like any other.

    Args:
        store: Holds the index.
        blobs: Holds the bytes.
    """

    def __init__(self, store: Store, blobs: BlobStore) -> None:
        self._store = store
        self._blobs = blobs
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

    async def delete(self, hashes: Sequence[str], owner: str) -> None:
        """Ends an owner's need, and deletes what nobody needs."""
        async with self._lock:
            for sha256 in hashes:
                await self._blobs.size(sha256)  # refuses what is no hash before anything changes
            for sha256 in await self._store.disown_blobs(owner, tuple(hashes)):
                await self._blobs.delete(sha256)
