"""Partitions with a URL: a node downloads them at their first use, verifies them, and keeps the copies within a quota."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hopyard._common.optional_import import need
from hopyard._runtime.datasets.manifest import store_at
from hopyard.errors import DataLoss, Exhausted, NotFound, Unavailable
from hopyard_nodeagent.snapshots.transfers import ReceivedFile, check_hash, receive_named_by_hash

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a partition on disk.

    Attributes:
        sha256: Hash of the content.
        path: The file.
        size: Size in bytes.
        used_at: Time of its last use, in seconds since the Unix epoch.
    """

    sha256: str
    path: Path
    size: int
    used_at: float


class Remote:
    """The node's copies of partitions that have URLs.

    A copy is a file named as in its URL, in a folder named by the hash of the content.

    The constructor deletes partial downloads of an earlier agent.

    Args:
        folder: Folder of the copies; it must exist.
        quota: Maximum total size of the copies in bytes; None: no limit.
    """

    def __init__(self, folder: Path, quota: int | None) -> None:
        self._folder = folder
        self._incoming = folder / ".incoming"
        shutil.rmtree(self._incoming, ignore_errors=True)
        self._incoming.mkdir()
        self._quota = quota
        self._used: Counter[str] = Counter()
        self._one = asyncio.Lock()

    def find(self, sha256: str) -> Path | None:
        """Return the file of the copy with this hash; None: there is no such copy.

        Raises:
            InvalidInput: The hash is invalid.
        """
        return next((file for file in self._of(check_hash(sha256))), None)

    @contextmanager
    def use(self, sha256: str) -> Iterator[None]:
        """Return a context in which the copy with this hash, if there is one, is not deleted to keep the quota."""
        self._used[sha256] += 1
        try:
            yield
        finally:
            self._used[sha256] -= 1

    async def get(self, url: str, sha256: str, size: int) -> tuple[Path, bool]:
        """Return the copy of a partition. Download the partition if there is no copy.

        Args:
            url: The URL.
            sha256: The expected hash; empty: any content, which is always downloaded.
            size: The expected size in bytes, to make room in advance; 0: unknown.

        Returns:
            The file, and whether this call downloaded it.

        Raises:
            NotFound: There is nothing at the URL.
            DataLoss: The content has another hash.
            Exhausted: The content does not fit into the quota.
            InvalidInput: No supported store has such URLs.
            Unavailable: The store did not provide the content.
            Unsupported: The package for downloads is not installed.
        """
        if sha256 and (known := self.find(sha256)) is not None:
            os.utime(known)
            return known, False
        async with self._one:  # One download at a time, because concurrent ones would use the same free space.
            if sha256 and (known := self.find(sha256)) is not None:
                return known, False
            self._make_room(url, size)
            got = await receive_named_by_hash(_chunks(url), self._incoming)
            return await asyncio.to_thread(self._keep, got, url, sha256), True

    def copies(self) -> list[Copy]:
        """Return all copies, the least recently used first."""
        found = [
            Copy(folder.name, file, (status := file.stat()).st_size, status.st_mtime)
            for folder in self._folder.iterdir()
            if folder != self._incoming
            for file in self._of(folder.name)
        ]
        return sorted(found, key=lambda one: (one.used_at, one.sha256))

    def _of(self, sha256: str) -> list[Path]:
        folder = self._folder / sha256
        return list(folder.iterdir()) if folder.is_dir() else []

    def _keep(self, got: ReceivedFile, url: str, sha256: str) -> Path:
        if sha256 and got.sha256 != sha256:
            got.path.unlink()
            raise DataLoss(f"{url}: found {got.size} bytes with the hash {got.sha256}; registered is {sha256}")
        try:
            self._make_room(url, 0)  # 0: the downloaded file is in the folder, so its size is already counted.
        except Exhausted:
            got.path.unlink()
            raise
        folder = self._folder / got.sha256
        folder.mkdir(exist_ok=True)
        known = self._of(got.sha256)
        target = known[0] if known else folder / Path(urlsplit(url).path).name
        os.replace(got.path, target)
        return target

    def _make_room(self, url: str, size: int) -> None:
        """Delete copies that are not in use, least recently used first, until `size` more bytes fit into the quota.

        Raises:
            Exhausted: They do not fit; the message names `url`.
        """
        if self._quota is None:
            return
        copies = self.copies()
        loose = sum(file.stat().st_size for file in self._incoming.iterdir())
        above = sum(one.size for one in copies) + loose + size - self._quota
        for one in copies:
            if above <= 0:
                return
            if not self._used[one.sha256]:
                shutil.rmtree(one.path.parent)
                above -= one.size
        if above > 0:
            raise Exhausted(
                f"{url}: {above} bytes more than the node's budget for partitions ({self._quota}); give it more with "
                "--data-quota"
            )


async def _chunks(url: str) -> AsyncIterator[bytes]:
    """Yield the content at a URL in chunks of at most 1 MiB. Credentials come from the environment.

    Raises:
        NotFound: There is nothing at the URL.
        Unavailable: The store did not provide the content.
    """
    base, _, name = url.rpartition("/")
    store, exceptions = store_at(base), need("obstore.exceptions", "data")
    try:
        answer = await need("obstore", "data").get_async(store, name)
        async for part in answer.stream(min_chunk_size=_CHUNK):
            whole = bytes(part)
            for start in range(0, len(whole), _CHUNK):
                yield whole[start : start + _CHUNK]
    except FileNotFoundError as error:
        raise NotFound(f"{url}: there is nothing") from error
    except exceptions.BaseError as error:
        raise Unavailable(f"{url}: {(str(error) or type(error).__name__).splitlines()[0]}") from error
