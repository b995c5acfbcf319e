"""The snapshots on this node's disk. A snapshot is a folder or a packed file, named by the hash of its content."""

from __future__ import annotations

import asyncio
import errno
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
from hopyard_nodeagent.cluster_access import TicketSource
from hopyard_nodeagent.snapshots.memory_images import InMemory
from hopyard_nodeagent.snapshots.peers import Peers
from hopyard_nodeagent.snapshots.references import SnapshotReferences
from hopyard_nodeagent.snapshots.store import BlobClient
from hopyard_nodeagent.snapshots.transfers import IDLE_SECONDS, Fetched, NoCopy, check_hash

_log = logging.getLogger(__name__)

SETTLE_SECONDS = 10.0
"""Files written or used within this number of seconds are not deleted: a process may be about to announce them."""


@dataclass(frozen=True, slots=True)
class File:
    """An entry of the snapshot folder.

    Attributes:
        path: The file or folder.
        sha256: Hash of the snapshot; empty: a partial file, which an interrupted write or transfer left or which is being written.
        size: Size in bytes.
        used_at: Time of its creation or last use, in seconds since the Unix epoch.
    """

    path: Path
    sha256: str
    size: int
    used_at: float


class Snapshots:
    """The snapshot folder of this node. The modification time of an entry is the time of its creation or last use.

    Slow disk operations run one after another in one thread. Names change in the event loop, with one rename each, so a snapshot
    appears and disappears atomically. A symbolic link refers to a snapshot in memory that is being copied to disk.

    Args:
        folder: Folder of the snapshots; it must exist.
        store: Client of the store, from which missing snapshots are downloaded if no peer has them.
        needs: Records which experiments need each snapshot; None: they are recorded in memory only.
        tickets: Requests tickets for transfers from peers.
        idle_seconds: Time in seconds without data after which a transfer from a peer (another agent) is abandoned.
    """

    def __init__(
        self,
        folder: Path,
        store: BlobClient,
        needs: SnapshotReferences | None = None,
        *,
        tickets: TicketSource,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self.folder = folder
        self.announcement_pending: Callable[[str], bool] = lambda sha256: False
        """Returns whether a run took a snapshot with this hash, and the scheduler has not acknowledged the message about it."""
        self.shipping: Callable[[str], bool] = lambda sha256: False
        """Returns whether the upload of the snapshot with this hash is pending."""
        self._store = store
        self._needs = needs or SnapshotReferences()
        self._needs.keep(path.name for path in folder.iterdir())
        self.belong_to(self._needs.cluster, adopt=False)
        self._peers = Peers(tickets, idle_seconds=idle_seconds)
        self._disk = ThreadPoolExecutor(1, "disk")
        self._deletions: set[asyncio.Future[None]] = set()
        self._sizes: dict[tuple[str, int], int] = {}
        """Sizes of folders by name and inode; folders never change, and measuring all of them takes seconds."""
        self._used: Counter[str] = Counter()
        self._unwanted: set[str] = set()
        self._fetches: dict[str, asyncio.Lock] = {}
        self.in_memory = InMemory(folder)

    def path(self, sha256: str) -> Path:
        """Return the path for the snapshot with this hash, whether the snapshot exists or not.

        Raises:
            InvalidInput: The hash is invalid.
        """
        return self.folder / check_hash(sha256)

    def hashes(self) -> list[str]:
        """Return the hashes of all snapshots of this cluster in the folder, except those that will be deleted after their use."""
        names = (path.name for path in self.folder.iterdir() if not path.name.startswith("."))
        return sorted(name for name in names if name not in self._unwanted and not self._needs.owner_elsewhere(name))

    def belong_to(self, cluster: str, *, adopt: bool) -> None:
        """Record that this folder belongs to a cluster, whose id is empty if it is unknown.

        Snapshots that only another cluster took or needed are not announced and not deleted. They are named in the log. With `adopt`
        they belong to this cluster from now on.

        Raises:
            OSError: A record cannot be written. Then the folder still belongs to its earlier cluster.
        """
        self._needs.belong_to(cluster, adopt=adopt)
        names = (path.name for path in self.folder.iterdir() if not path.name.startswith("."))
        for other, count in Counter(filter(None, map(self._needs.owner_elsewhere, names))).items():
            _log.warning(
                "%d snapshots in %s belong to cluster %s, this agent to cluster %s: they are neither used nor deleted; start the agent "
                "once with --adopt to let them belong to its cluster, or move them and their files in %s away",
                count,
                self.folder,
                other,
                cluster,
                self._needs.folder,
            )

    async def size_bytes(self) -> int:
        """Return the total size of the folder's entries in bytes."""
        return sum(one.size for one in await self.files())

    @contextmanager
    def use(self, sha256: str) -> Iterator[Path]:
        """Return a context that yields the path of a snapshot and protects it from deletion. The snapshot need not exist yet.

        If its deletion is requested meanwhile, it is deleted when the last such context ends.
        """
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
        """Return whether a snapshot must not be deleted.

        That is so while it is in use, its upload is pending, or the scheduler has not acknowledged the message that announces it.
        """
        return bool(self._used[sha256]) or self.shipping(sha256) or self.announcement_pending(sha256)

    async def files(self) -> list[File]:
        """Return all entries of the folder, including partial files, the least recently used first."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, self._files)

    async def idle(self, older_than_seconds: float) -> list[File]:
        """Return the entries, including partial files, that may be deleted and were not used recently.

        Snapshots that are `busy` or belong to another cluster may not be deleted.

        Args:
            older_than_seconds: Minimum time in seconds since the last use; lower values than SETTLE_SECONDS (10) are raised to it.
        """
        return self._idle(await self.files(), older_than_seconds)

    async def named(self, hashes: Iterable[str]) -> list[File]:
        """Return the entries of these snapshots, in use or not, without missing ones and those of another cluster."""
        wanted = set(hashes)
        return [
            one for one in await self.files() if one.sha256 in wanted and not self._needs.owner_elsewhere(one.sha256)
        ]

    def experiments(self, sha256: str) -> list[str]:
        """Return the ids of the experiments of this cluster that took or needed a snapshot on this node, sorted."""
        return sorted(self._needs.of(sha256))

    async def remove_partials(self, partials: Iterable[File]) -> None:
        """Delete these partial files, which `files` or `idle` returned. Missing ones are ignored."""
        for one in partials:
            await asyncio.get_running_loop().run_in_executor(self._disk, remove, one.path)

    def _idle(self, files: Iterable[File], older_than_seconds: float) -> list[File]:
        before = time.time() - max(older_than_seconds, SETTLE_SECONDS)
        old = (one for one in files if one.used_at <= before)
        return [
            one
            for one in old
            if not one.sha256 or not (self.busy(one.sha256) or self._needs.owner_elsewhere(one.sha256))
        ]

    def _files(self) -> list[File]:
        """Return all entries of the folder; called in the disk thread.

        Sizes are measured first, because that takes long; so the times of last use are recent.
        """
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
        """Return the key under which to cache the size of an entry (its name and inode), and its size in bytes.

        The key is None for files, whose sizes are cheap to read, and for partial (hidden) folders, which still change: their sizes are
        not cached.
        """
        with suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_ISDIR(status.st_mode) and not path.name.startswith("."):
                key = path.name, status.st_ino
                return key, self._sizes[key] if key in self._sizes else size_of(path)
        return None, size_of(path)

    async def make_room(self, quota: int) -> tuple[list[str], int]:
        """Delete copies of stored snapshots, least recently used first, until the folder has at most `quota` bytes.

        Busy snapshots are kept. A snapshot is also kept unless the store has it and each experiment that needs it on this node is an
        owner of the blob there: a blob that only other experiments own may be deleted from the store at any time.

        Args:
            quota: Maximum size of the folder in bytes.

        Returns:
            The hashes of the deleted snapshots, and the number of bytes that remain above the quota.

        Raises:
            HopyardError: The store cannot be queried.
        """
        files = await self.files()
        above = sum(one.size for one in files) - quota
        if above <= 0:
            return [], 0
        candidates = [one for one in self._idle(files, 0.0) if one.sha256 and not self._needs.elsewhere(one.sha256)]
        stored = await self._stored([one.sha256 for one in candidates])
        deleted = []
        for one in candidates:
            # It may have been taken again or requested since the store was queried.
            if above <= 0 or one.sha256 not in stored or self.busy(one.sha256) or not _untouched(one):
                continue
            self._delete(one.path)
            deleted.append(one.sha256)
            above -= one.size
        return deleted, max(above, 0)

    async def _stored(self, hashes: Sequence[str]) -> set[str]:
        """Return those of the hashes that are blobs in the store, owned by every experiment that needs the snapshot on this node."""
        stored = await self._store.stored(hashes)
        wanted: dict[str, list[str]] = {}
        for sha256 in hashes:
            for experiment in self._needs.of(sha256):
                wanted.setdefault(experiment, []).append(sha256)
        for experiment, its in wanted.items():
            stored -= set(its) - await self._store.stored(its, experiment)
        return stored

    def forget(self, hashes: Iterable[str]) -> None:
        """Delete snapshots. Missing ones are ignored, and those in use are deleted after their use.

        A snapshot that a run took and has not announced yet is kept: equal states have equal hashes, and the scheduler does not know
        yet that the snapshot was taken again. A snapshot that another cluster took, too, is kept for that cluster.
        """
        for sha256 in hashes:
            path = self.path(sha256)
            if self.announcement_pending(sha256):
                self._unwanted.discard(sha256)
            elif self._needs.elsewhere(sha256):
                self._needs.forget(sha256)
            elif self._used[sha256]:
                self._unwanted.add(sha256)
            else:
                self._unwanted.discard(sha256)
                self._delete(path)

    def taken(self, sha256: str, experiment: str) -> None:
        """Record that a run of an experiment took this snapshot, and cancel a pending deletion of it.

        If the snapshot is in memory, start to copy it to disk.
        """
        self._unwanted.discard(sha256)
        self._needs.add(sha256, experiment)
        self.in_memory.leave(self.path(sha256))

    async def fetch(self, sha256: str, peers: Sequence[str], experiment: str = "") -> Fetched:
        """Make a snapshot available on this node's disk: if it is missing, download it from a peer or the store.

        Args:
            sha256: Hash of the snapshot.
            peers: Addresses of agents that may have it, in the order in which to try them. The store is tried last.
            experiment: Id of the experiment that needs it from now on; empty: none is recorded.

        Returns:
            What was downloaded, and from where.

        Raises:
            NoCopy: Neither a peer nor the store has an undamaged copy; the message contains all errors.
            Unavailable: No peer provided the snapshot, and the store could not be queried.
        """
        fetched = await self._fetch(sha256, peers)
        if experiment:
            self._needs.add(sha256, experiment)
        return fetched

    async def _fetch(self, sha256: str, peers: Sequence[str]) -> Fetched:
        path = self.path(sha256)
        async with self._fetches.setdefault(sha256, asyncio.Lock()):
            self._unwanted.discard(sha256)
            if self._sound(path):
                return Fetched()
            tried: list[str] = []
            missing_at: list[str] = []
            for peer in peers:
                try:
                    return Fetched(await self._peers.fetch(peer, sha256, path))
                except HopyardError as error:
                    tried.append(f"{peer}: {error}")
                    if isinstance(error, NotFound | DataLoss):
                        missing_at.append(peer)
            try:
                return Fetched(await self._store.get(sha256, path), from_store=True)
            except HopyardError as error:
                tried.append(f"store: {error}")
                message = f"snapshot {sha256} cannot be got: {'; '.join(tried)}"
                if isinstance(error, NotFound | DataLoss):
                    raise NoCopy(message, missing_at) from error
                raise Unavailable(message) from error

    def _sound(self, path: Path) -> bool:
        """Return whether a snapshot is at a path as a folder, a file, or a link to memory. Anything else that is there is deleted."""
        try:
            mode = os.lstat(path).st_mode
        except FileNotFoundError:
            return False
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode) or self.in_memory.has(path):
            return True
        _log.error("snapshot %s is damaged on this disk and was deleted: it is neither a folder nor a file", path.name)
        self._delete(path)
        return False

    async def discard_if_corrupt(self, sha256: str) -> bool:
        """Delete a snapshot if its content does not match its hash, so that the next start of a run fetches another copy.

        It is deleted even if it is in use.

        Returns:
            Whether the snapshot was corrupt and has been deleted. False: it is intact or does not exist.
        """
        path = self.path(sha256)
        if not _is_there(path):
            return False
        if self._sound(path):
            if (await asyncio.to_thread(_hash, path)) == sha256:
                return False
            _log.error("snapshot %s is corrupt on this disk and was deleted", sha256)
            self._delete(path)
        return True

    async def intact(self, sha256: str) -> bool:
        """Return whether a snapshot is on this disk and its content matches its hash. A corrupt one is deleted, even if in use."""
        return not await self.discard_if_corrupt(sha256) and _is_there(self.path(sha256))

    async def close(self) -> None:
        """Close the connections to peers, and wait for deletions in progress."""
        await self._peers.close()
        await asyncio.gather(*self._deletions)
        self._disk.shutdown(wait=False)

    def _delete(self, path: Path) -> None:
        """Remove the snapshot at `path` by renaming it to a hidden name; a thread deletes its bytes later."""
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
    """Return whether an entry of the folder still exists and has not been used since its description `one` was read."""
    with suppress(FileNotFoundError):
        return one.path.stat().st_mtime == one.used_at
    return False


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def _hash(path: Path) -> str:
    """Return the hash of the content at a path; empty if it is not a valid snapshot, or cannot be read.

    Raises:
        OSError: It could not be read because this process has too few file descriptors or too little memory.
    """
    try:
        return (hash_folder(path) if path.is_dir() else hash_file(path)).sha256
    except SnapshotFileError:
        return ""
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return ""
