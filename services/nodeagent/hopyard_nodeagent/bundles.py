"""The code bundles of experiments on this node. Unpacked code is compared with its bundle before a process starts, and repaired."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from hopyard._runtime.bundle import BundleCorrupt, BundleError, recorded_files
from hopyard._runtime.untrusted.unpacked_bundle import UnpackedBundle, listed
from hopyard.errors import DataLoss, NotFound
from hopyard_nodeagent.snapshots.store import BlobClient
from hopyard_nodeagent.snapshots.transfers import check_hash, ended

T = TypeVar("T")

_log = logging.getLogger(__name__)

_MOST_KNOWN: Final = 32
"""Maximum number of bundles whose lists of files are kept in memory."""

_TRIES: Final = 2
"""Number of downloads of a bundle whose bytes do not have its hash; the first may be damaged on its way."""


class CodeMissing(DataLoss):
    """Raised if the code of a bundle cannot be repaired.

    Either the packed bundle on this node is missing or damaged, and the store has no undamaged copy: somebody must send the code again
    (`hopyard resend`). Or the unpacked files differ again right after a repair. Other nodes may have undamaged copies.
    """


class Bundles:
    """The code bundles of this node: `SHA256.packed` is the verified bundle, the folder `SHA256` its unpacked files.

    Both are verified before they are used. What is damaged is replaced: the files from the packed bundle, and that from the store.

    Args:
        folder: Folder for bundles; it must exist.
        store: Client of the store, which downloads bundles.
    """

    def __init__(self, folder: Path, store: BlobClient) -> None:
        self._folder = folder
        self._store = store
        self._locks: dict[str, asyncio.Lock] = {}
        self._known: OrderedDict[str, UnpackedBundle] = OrderedDict()

    async def folder(self, sha256: str) -> Path:
        """Return the folder with the code of a bundle, after comparing it with the bundle and, if necessary, repairing it.

        Args:
            sha256: Hash of the bundle.

        Raises:
            CodeMissing: No undamaged copy of the bundle exists.
            HopyardError: The store cannot be reached, or the hash is invalid.
            BundleError: The bundle has members that are not allowed.
            OSError: The disk is full or cannot be read.
        """
        async with self._verified(sha256) as code:
            return code.folder

    async def copy(self, sha256: str, target: Path) -> None:
        """Copy the code of a bundle to a new folder, in which a run may write.

        Args:
            sha256: Hash of the bundle; empty: no bundle, and the new folder is empty.
            target: The new folder, which must not exist yet.

        Raises:
            CodeMissing, HopyardError, BundleError, OSError: As for `folder`.
        """
        if not sha256:
            await _in_thread(target.mkdir)
            return
        async with self._verified(sha256) as code:
            await _in_thread(code.copy, target)

    @asynccontextmanager
    async def _verified(self, sha256: str) -> AsyncIterator[UnpackedBundle]:
        """Return a context that yields the verified code of a bundle. Meanwhile no other caller verifies or repairs it."""
        check_hash(sha256)
        async with self._locks.setdefault(sha256, asyncio.Lock()):
            code = self._known.get(sha256) or await self._read(sha256)
            self._known[sha256] = code
            self._known.move_to_end(sha256)
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
            await self._repair(sha256, code)
            yield code

    async def _read(self, sha256: str) -> UnpackedBundle:
        files = await self._with_packed(sha256, lambda packed: recorded_files(packed, sha256))
        return UnpackedBundle(self._folder / sha256, sha256, files)

    async def _repair(self, sha256: str, code: UnpackedBundle) -> None:
        """Compare the unpacked files with the bundle, and repair them.

        Raises:
            CodeMissing: The files differ again after the repair, or there is no copy of the bundle to repair them from.
        """
        found = await _in_thread(code.differences)
        if not found:
            return
        new = not _is_there(code.folder)
        await self._with_packed(sha256, lambda packed: code.repair(packed, found))
        if not new:
            _log.warning("code bundle %s was damaged on this disk and is repaired: %s", sha256, listed(found))
        if found := await _in_thread(code.differences):
            raise CodeMissing(f"code bundle {sha256} is damaged again right after its repair: {listed(found)}")

    async def _with_packed(self, sha256: str, work: Callable[[Path], T]) -> T:
        """Call a function with the packed bundle on this disk, and return its result.

        If the function finds that the bundle is missing or damaged, download it from the store, and call the function again.

        Args:
            sha256: Hash of the bundle.
            work: Called in a thread; verifies the bundle before it uses it.

        Raises:
            CodeMissing: The store does not have an undamaged copy.
        """
        packed = self._folder / f"{sha256}.packed"
        try:
            return await _in_thread(work, packed)
        except BundleCorrupt as error:
            if _is_there(packed):
                _log.warning("%s; it is replaced", error)
                await _in_thread(_remove, packed)
        await self._download(sha256, packed)
        try:
            return await _in_thread(work, packed)
        except BundleCorrupt as error:  # Its hash is right, so every copy has these bytes.
            raise BundleError(str(error)) from error

    async def _download(self, sha256: str, packed: Path) -> None:
        problem = ""
        for _ in range(_TRIES):
            try:
                await self._store.get(sha256, packed)
            except (NotFound, DataLoss) as error:  # A store deletes a blob that it finds damaged.
                problem = problem or str(error)
            else:
                return
        raise CodeMissing(f"code bundle {sha256} is neither on this node nor in the store: {problem}")


async def _in_thread(work: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a thread and return its result. A cancelled call waits too: two threads must not repair one folder."""
    working = asyncio.get_running_loop().run_in_executor(None, partial(work, *arguments))
    await ended(working)
    return working.result()


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
