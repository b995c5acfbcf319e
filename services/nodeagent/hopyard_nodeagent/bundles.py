"""The experiments' code on this node, each bundle unpacked once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hopyard import bundle
from hopyard_nodeagent.store import Store
from hopyard_nodeagent.transfers import check_hash


class Bundles:
    """Unpacked code bundles, each in a folder named by its hash."""

    def __init__(self, folder: Path, store: Store) -> None:
        """Unpack into `folder`, which exists."""
        self._folder = folder
        self._store = store
        self._opening: dict[str, asyncio.Lock] = {}

    async def folder(self, sha256: str) -> Path:
        """Folder of a bundle's code; got from the store when it is not here yet.

        Raises:
            HopyardError: the store does not give it.
            BundleError: it is not a bundle that may be unpacked.
        """
        target = self._folder / check_hash(sha256)
        async with self._opening.setdefault(sha256, asyncio.Lock()):
            if not target.is_dir():
                packed = self._folder / f".{sha256}.packed"
                try:
                    await self._store.get(sha256, packed)
                    await asyncio.to_thread(bundle.unpack, packed, target, sha256)
                finally:
                    packed.unlink(missing_ok=True)
        return target
