"""The packed snapshots on this node's disk, each named by its hash."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hopyard.errors import DataLoss, HopyardError, NotFound, Unavailable
from hopyard.rpc import channel
from hopyard.snapshotfile import hash_file
from hopyard.v1 import node_agent_pb2, node_agent_pb2_grpc
from hopyard_nodeagent.store import Store
from hopyard_nodeagent.transfers import IDLE_SECONDS, Fetched, check_hash, in_time, receive_file

_log = logging.getLogger(__name__)

SETTLE_SECONDS = 10.0
"""What was written or used within so many seconds is not cleared away: a process may be about to tell of it."""


@dataclass(frozen=True, slots=True)
class File:
    """A file in the snapshot folder: its hash (empty: nobody finished it), size in bytes, and when it was used last."""

    path: Path
    sha256: str
    size: int
    used_at: float


class Snapshots:
    """The node's snapshot folder. A file's time of modification is when it was written or used last."""

    def __init__(self, folder: Path, store: Store, *, idle_seconds: float = IDLE_SECONDS) -> None:
        """Use `folder`, which exists; what is missing is got from peers or the store.

        A peer that sends nothing for `idle_seconds` is given up.
        """
        self.folder = folder
        self.spoken_of: Callable[[str], bool] = lambda sha256: False
        """Whether the scheduler has yet to take over that a snapshot with this hash was taken here."""
        self.shipping: Callable[[str], bool] = lambda sha256: False
        """Whether a snapshot is on its way to the store."""
        self._only_here: set[str] = set()
        self._store = store
        self._idle_seconds = idle_seconds
        self._used: Counter[str] = Counter()
        self._unwanted: set[str] = set()
        self._fetches: dict[str, asyncio.Lock] = {}

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

    def size_bytes(self) -> int:
        """Bytes of all of it."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())

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

    def files(self) -> list[File]:
        """What lies in the folder, the one that was used longest ago first."""
        found = []
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):
                status = path.stat()
                name = "" if path.name.startswith(".") else path.name
                found.append(File(path, name, status.st_size, status.st_mtime))
        return sorted(found, key=lambda file: (file.used_at, file.path.name))

    def idle(self, older_than_seconds: float) -> list[File]:
        """What nobody has used for so many seconds and is not busy, partial files included."""
        before = time.time() - max(older_than_seconds, SETTLE_SECONDS)
        return [one for one in self.files() if one.used_at <= before and not (one.sha256 and self.busy(one.sha256))]

    def shipped(self, sha256: str, taken: bool) -> None:
        """Whether the store took a snapshot. If not, this copy is all there is, and stays until it is to be forgotten."""
        if taken or not self.path(sha256).is_file():
            self._only_here.discard(sha256)
        else:
            self._only_here.add(sha256)

    async def make_room(self, quota: int) -> tuple[list[str], int]:
        """Delete copies of what is in the store, those used longest ago first, until the folder has at most `quota` bytes.

        What is busy stays, and what the store does not have.

        Returns:
            What was deleted, and the bytes that are left above the quota.

        Raises:
            HopyardError: The store cannot be asked.
        """
        above = sum(one.size for one in await asyncio.to_thread(self.files)) - quota
        if above <= 0:
            return [], 0
        candidates = [one for one in self.idle(0.0) if one.sha256 and one.sha256 not in self._only_here]
        stored = await self._store.stored([one.sha256 for one in candidates])
        deleted = []
        for one in candidates:
            # It may have been taken anew, or be wanted, since the store was asked.
            if above <= 0 or one.sha256 not in stored or self.busy(one.sha256):
                continue
            one.path.unlink(missing_ok=True)
            deleted.append(one.sha256)
            above -= one.size
        return deleted, max(above, 0)

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
                self._only_here.discard(sha256)
                path.unlink(missing_ok=True)

    def taken(self, sha256: str) -> None:
        """A run has taken this snapshot (anew): a deletion of it that still waits is taken back."""
        self._unwanted.discard(sha256)

    async def fetch(self, sha256: str, peers: Sequence[str]) -> Fetched:
        """Have a snapshot here: from the disk, from the first peer that gives it, or from the store.

        Returns:
            What had to be got, and where from.

        Raises:
            NotFound: nobody that answered has it, and the store has not; the message says what each one answered.
            Unavailable: nobody gave it, and the store could not be asked.
        """
        path = self.path(sha256)
        async with self._fetches.setdefault(sha256, asyncio.Lock()):
            self._unwanted.discard(sha256)
            if path.is_file():
                return Fetched()
            tried: list[str] = []
            for peer in peers:
                try:
                    return Fetched(await self._from_peer(peer, sha256, path))
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
        if not path.is_file() or (await asyncio.to_thread(hash_file, path)).sha256 == sha256:
            return False
        _log.error("snapshot %s is corrupt on this disk and was deleted", sha256)
        path.unlink(missing_ok=True)
        return True

    async def _from_peer(self, peer: str, sha256: str, target: Path) -> int:
        async with channel(peer) as connection:
            stub = node_agent_pb2_grpc.NodeAgentServiceStub(connection)

            async def chunks() -> AsyncIterator[bytes]:
                call = stub.FetchSnapshot(node_agent_pb2.FetchSnapshotRequest(sha256=sha256))
                try:
                    async for response in call:
                        yield response.data
                finally:
                    call.cancel()

            source = f"the node agent at {peer}"
            arriving = in_time(chunks(), self._idle_seconds, source)
            return await receive_file(arriving, target, sha256, source, durable=False)
