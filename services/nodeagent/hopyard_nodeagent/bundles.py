"""The code bundles of experiments on this node. Each bundle is downloaded and unpacked once."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from hopyard._runtime import bundle
from hopyard_nodeagent.snapshots.store import BlobClient
from hopyard_nodeagent.snapshots.transfers import check_hash


class Bundles:
    """The unpacked code bundles of this node, each in a folder named by the hash of the bundle.

    Args:
        folder: Folder for unpacked bundles; it must exist.
        store: Client of the store, which downloads bundles.
    """

    def __init__(self, folder: Path, store: BlobClient) -> None:
        self._folder = folder
        self._store = store
        self._opening: dict[str, asyncio.Lock] = {}

    async def folder(self, sha256: str) -> Path:
        """Return the folder with the code of a bundle. Download and unpack the bundle if necessary.

        Args:
            sha256: Hash of the bundle.

        Raises:
            HopyardError: The store does not have the bundle (NotFound) or cannot be reached, or the hash is invalid.
            BundleError: The downloaded file is not a valid bundle.
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

    async def copy(self, sha256: str, target: Path) -> None:
        """Copy the code of a bundle to a new folder, in which a run may write.

        Args:
            sha256: Hash of the bundle; empty: no bundle, and the new folder is empty.
            target: The new folder, which must not exist yet.

        Raises:
            HopyardError: The store does not have the bundle (NotFound) or cannot be reached, or the hash is invalid.
            BundleError: The downloaded file is not a valid bundle.
        """
        source = await self.folder(sha256) if sha256 else None
        await asyncio.to_thread(_copy, source, target)


def _copy(source: Path | None, target: Path) -> None:
    if source is None:
        target.mkdir()
    else:
        shutil.copytree(source, target, copy_function=_copy_writable)


def _copy_writable(source: str, target: str) -> None:
    shutil.copyfile(source, target)
    os.chmod(target, 0o700 if os.access(source, os.X_OK) else 0o600)
