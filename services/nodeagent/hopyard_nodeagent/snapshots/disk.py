"""The snapshots on this node's disk, each named by its hash: folders as trainers saved them, or packed files."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hopyard._runtime.snapshot_file import SnapshotFileError, hash_file
from hopyard._runtime.snapshot_folder import hash_folder, remove, size_of
from hopyard.errors import DataLoss, HopyardError, NotFound, Unavailable
from hopyard_nodeagent.snapshots.memory_images import InMemory
from hopyard_nodeagent.snapshots.peers import Peers
from hopyard_nodeagent.snapshots.references import SnapshotReferences
from hopyard_nodeagent.snapshots.store import BlobClient
from hopyard_nodeagent.snapshots.transfers import IDLE_SECONDS, Fetched, check_hash

_log = logging.getLogger(__name__)

SETTLE_SECONDS = 10.0
"""What was written or used within so many seconds is not cleared away: a process may be about to tell of it."""


@dataclass(frozen=True, slots=True)
class File:
    """A snapshot on the disk: its hash (empty: nobody finished it), size in bytes, and when it was used last."""

    path: Path
    sha256: str
    size: int
    used_at: float


class Snapshots:
    """The node's snapshot folder. The time of modification of what lies there is when it was written or used last.

    What takes long on the disk is done in order on one thread beside the event loop. What becomes of a name is decided on the loop:
    a snapshot appears and goes by one renaming. A link leads to one in memory, which follows to the disk.
    """

    def __init__(
        self,
        folder: Path,
        store: BlobClient,
        needs: SnapshotReferences | None = None,
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        """Use `folder`, which exists; what is missing is got from peers or the store.

        `needs` say which experiments what lies there is for. A peer that sends nothing for `idle_seconds` is given up.
        """
        self.folder = folder
        self.spoken_of: Callable[[str], bool] = lambda sha256: False
        """Whether the scheduler has yet to take over that a snapshot with this hash was taken here."""
        self.shipping: Callable[[str], bool] = lambda sha256: False
        """Whether a snapshot is on its way to the store."""
        self._store = store
        self._needs = needs or SnapshotReferences()
        self._needs.keep(path.name for path in folder.iterdir())
        self._peers = Peers(idle_seconds=idle_seconds)
        self._disk = ThreadPoolExecutor(1, "disk")
        self._deletions: set[asyncio.Future[None]] = set()
        self._sizes: dict[tuple[str, int], int] = {}
        """Bytes of folders, by name and inode: nobody changes one, and a look into all of them takes seconds."""
        self._used: Counter[str] = Counter()
        self._unwanted: set[str] = set()
        self._fetches: dict[str, asyncio.Lock] = {}
        self.in_memory = InMemory(folder)

    def path(self, sha256: str) -> Path:
        """Where a snapshot is, or would be.

        Raises:
            InvalidInput: the hash is none.
        """
        return self.folder / check_hash(sha256)

    def hashes(self) -> list[str]:
        """What is on the disk and not about to be deleted."""
        names = (path.name for path in self.folder.iterdir() if not path.name.startswith("."))
        return sorted(name for name in names if name not in self._unwanted)

    async def size_bytes(self) -> int:
        """Bytes of all of it."""
        return sum(one.size for one in await self.files())

    @contextmanager
    def use(self, sha256: str) -> Iterator[Path]:
        """Keep a snapshot while it is used: deletions of it wait."""
        path = self.path(sha256)
        self._used[sha256] += 1
        try:
            with suppress(FileNotFoundError):
                os.utime(path)
            yield path
        finally:
            self._used[sha256] -= 1
            if not self._used[sha256]:
                del self._used[sha256]
                if sha256 in self._unwanted:
                    self.forget([sha256])

    def busy(self, sha256: str) -> bool:
        """Whether a snapshot is in use, on its way to the store, or not yet told of."""
        return bool(self._used[sha256]) or self.shipping(sha256) or self.spoken_of(sha256)

    async def files(self) -> list[File]:
        """What lies in the folder, the one that was used longest ago first."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, self._files)

    async def idle(self, older_than_seconds: float) -> list[File]:
        """What nobody has used for so many seconds and is not busy, partial files included."""
        return self._idle(await self.files(), older_than_seconds)

    async def remove_partials(self, partials: Iterable[File]) -> None:
        """Delete what nobody finished."""
        for one in partials:
            await asyncio.get_running_loop().run_in_executor(self._disk, remove, one.path)

    def _idle(self, files: Iterable[File], older_than_seconds: float) -> list[File]:
        before = time.time() - max(older_than_seconds, SETTLE_SECONDS)
        return [one for one in files if one.used_at <= before and not (one.sha256 and self.busy(one.sha256))]

    def _files(self) -> list[File]:
        """The same as `files`, on the disk's thread: sizes first, since times of use are to be those of the end."""
        sizes = {path: self._size(path) for path in self.folder.iterdir()}
        self._sizes = {key: size for key, size in sizes.values() if key is not None}
        found = []
        for path, (_, size) in sizes.items():
            with suppress(FileNotFoundError):
                status = path.stat()
                name = "" if path.name.startswith(".") else path.name
                found.append(File(path, name, size, status.st_mtime))
        return sorted(found, key=lambda file: (file.used_at, file.path.name))

    def _size(self, path: Path) -> tuple[tuple[str, int] | None, int]:
        """Bytes of what lies there, and under which key they may be remembered."""
        with suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_ISDIR(status.st_mode) and not path.name.startswith("."):
                key = path.name, status.st_ino
                return key, self._sizes[key] if key in self._sizes else size_of(path)
        return None, size_of(path)

    async def make_room(self, quota: int) -> tuple[list[str], int]:
        """Delete copies of what is in the store, those used longest ago first, until the folder has at most `quota` bytes.

        What is busy stays, and what the store does not have for each experiment that has it here: equal bytes that are another's may
        be deleted there at any time.

        Returns:
            What was deleted, and the bytes that are left above the quota.

        Raises:
            HopyardError: The store cannot be asked.
        """
        files = await self.files()
        above = sum(one.size for one in files) - quota
        if above <= 0:
            return [], 0
        candidates = [one for one in self._idle(files, 0.0) if one.sha256]
        stored = await self._stored([one.sha256 for one in candidates])
        deleted = []
        for one in candidates:
            # It may have been taken anew, or be wanted, since the store was asked.
            if above <= 0 or one.sha256 not in stored or self.busy(one.sha256) or not _untouched(one):
                continue
            self._delete(one.path)
            deleted.append(one.sha256)
            above -= one.size
        return deleted, max(above, 0)

    async def _stored(self, hashes: Sequence[str]) -> set[str]:
        """Those that the store has for everybody who has them here."""
        stored = await self._store.stored(hashes)
        wanted: dict[str, list[str]] = {}
        for sha256 in hashes:
            for experiment in self._needs.of(sha256):
                wanted.setdefault(experiment, []).append(sha256)
        for experiment, its in wanted.items():
            stored -= set(its) - await self._store.stored(its, experiment)
        return stored

    def forget(self, hashes: Iterable[str]) -> None:
        """Delete snapshots, those in use as soon as they are not; what is not there is fine.

        One that is `spoken_of` stays: equal states give equal hashes, and whoever wants this one deleted does not know
        yet that it was taken anew.
        """
        for sha256 in hashes:
            path = self.path(sha256)
            if self.spoken_of(sha256):
                self._unwanted.discard(sha256)
            elif self._used[sha256]:
                self._unwanted.add(sha256)
            else:
                self._unwanted.discard(sha256)
                self._delete(path)

    def taken(self, sha256: str, experiment: str) -> None:
        """A run of an experiment has taken this snapshot (anew): a deletion of it that still waits is taken back.

        If it lies in memory it begins to follow to the disk.
        """
        self._unwanted.discard(sha256)
        self._needs.add(sha256, experiment)
        self.in_memory.leave(self.path(sha256))

    async def fetch(self, sha256: str, peers: Sequence[str], experiment: str = "") -> Fetched:
        """Have a snapshot here for an experiment: from the disk, from the first peer that gives it, or from the store.

        Returns:
            What had to be got, and where from.

        Raises:
            NotFound: nobody that answered has it, and the store has not; the message says what each one answered.
            Unavailable: nobody gave it, and the store could not be asked.
        """
        fetched = await self._fetch(sha256, peers)
        if experiment:
            self._needs.add(sha256, experiment)
        return fetched

    async def _fetch(self, sha256: str, peers: Sequence[str]) -> Fetched:
        path = self.path(sha256)
        async with self._fetches.setdefault(sha256, asyncio.Lock()):
            self._unwanted.discard(sha256)
            if path.exists():
                return Fetched()
            tried: list[str] = []
            for peer in peers:
                try:
                    return Fetched(await self._peers.fetch(peer, sha256, path))
                except HopyardError as error:
                    tried.append(f"{peer}: {error}")
            try:
                return Fetched(await self._store.get(sha256, path), from_store=True)
            except HopyardError as error:
                tried.append(f"store: {error}")
                kind = NotFound if isinstance(error, NotFound | DataLoss) else Unavailable
                raise kind(f"snapshot {sha256} cannot be got: {'; '.join(tried)}") from error

    async def discard_if_corrupt(self, sha256: str) -> bool:
        """Delete a snapshot whose bytes are not what its hash promises, so that the next start gets another copy.

        Returns:
            Whether it was.
        """
        path = self.path(sha256)
        if not path.exists() or (await asyncio.to_thread(_hash, path)) == sha256:
            return False
        _log.error("snapshot %s is corrupt on this disk and was deleted", sha256)
        self._delete(path)
        return True

    async def close(self) -> None:
        """Close the connections to peers; deletions are carried out."""
        await self._peers.close()
        await asyncio.gather(*self._deletions)
        self._disk.shutdown(wait=False)

    def _delete(self, path: Path) -> None:
        """It is gone at once, and its bytes when there is time."""
        self.in_memory.forget(path)
        self._needs.forget(path.name)
        gone = path.with_name(f".{uuid.uuid4().hex}.gone")
        try:
            path.rename(gone)
        except FileNotFoundError:
            return
        deletion = asyncio.get_running_loop().run_in_executor(self._disk, remove, gone)
        self._deletions.add(deletion)
        deletion.add_done_callback(self._deletions.discard)


def _untouched(one: File) -> bool:
    """Whether nobody has taken or used it since it was looked at."""
    with suppress(FileNotFoundError):
        return one.path.stat().st_mtime == one.used_at
    return False


def _hash(path: Path) -> str:
    """The hash of what is there; empty: it is nothing that a snapshot may be."""
    try:
        return (hash_folder(path) if path.is_dir() else hash_file(path)).sha256
    except SnapshotFileError:
        return ""
