"""Uploads snapshots to the store, independently of the training."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hopyard._net.rpc import Backoff
from hopyard._net.server import Background
from hopyard._runtime.snapshot_folder import size_of
from hopyard.errors import Aborted, DataLoss, HopyardError, TimedOut, Unavailable
from hopyard.policy.vocabulary import RunKey
from hopyard_nodeagent.snapshots.disk import Snapshots
from hopyard_nodeagent.snapshots.store import BlobClient

_log = logging.getLogger(__name__)

CONCURRENCY: Final = 2
_SMALL_BYTES: Final = 64 * 1024

REFUSALS: Final = 5
_AWAY: Final = (Unavailable, TimedOut, Aborted)
"""Errors that mean that the store is unavailable at present; others count as refusals."""


_GONE: Final = "it is not on this node any more"


@dataclass(frozen=True, slots=True)
class Shipment:
    """A snapshot to upload.

    Attributes:
        run: The run that took the snapshot. If the scheduler ordered the upload, only experiment and job are set, and the attempt is 0.
        position: Position of the snapshot.
        sha256: Hash of the snapshot.
        order: Number of the scheduler's upload order; 0: not ordered.
    """

    run: RunKey
    position: int
    sha256: str
    order: int = 0

    def __str__(self) -> str:
        run = self.run
        return f"snapshot {self.sha256} at {self.position} of job {run.job} of experiment {run.stream}"


class Uploader:
    """Uploads snapshots in order of arrival, two at a time.

    An unavailable store is tried again without limit. If the store refuses a snapshot (too large, or its disk is full) `REFUSALS`
    times, its upload is abandoned.

    A new instance uploads nothing until `start` is called.

    Args:
        snapshots: The snapshots on this node.
        store: Client of the store.
        backoff: Waiting times between attempts.
        done: Called with each finished upload and an error message; the message is empty if the snapshot is stored.
    """

    def __init__(
        self, snapshots: Snapshots, store: BlobClient, *, backoff: Backoff, done: Callable[[Shipment, str], None]
    ) -> None:
        self._snapshots = snapshots
        self._store = store
        self._backoff = backoff
        self._done = done
        self._queue: asyncio.Queue[Shipment] = asyncio.Queue()
        self._wanted: set[Shipment] = set()
        # Random waits only spread the load; replays do not depend on them.
        self._rng = random.Random()

    def start(self, background: Background) -> None:
        """Start to upload, in tasks that `background` starts and supervises."""
        for number in range(CONCURRENCY):
            background.start(self._work(), name=f"shipper-{number}")

    def ship(self, shipment: Shipment) -> None:
        """Add a snapshot to the uploads. Ignored if an upload for an equal `shipment` is pending already."""
        if shipment not in self._wanted:
            self._wanted.add(shipment)
            self._queue.put_nowait(shipment)

    @property
    def waiting(self) -> int:
        """The number of uploads that have not finished."""
        return len(self._wanted)

    def pending(self, run: RunKey) -> bool:
        """Return whether the upload of a snapshot that this run took has not finished."""
        return any(shipment.run == run for shipment in self._wanted)

    def ships(self, sha256: str) -> bool:
        """Return whether an upload of the snapshot with this hash has not finished."""
        return any(shipment.sha256 == sha256 for shipment in self._wanted)

    def forget(self, run: RunKey) -> None:
        """Cancel all uploads of snapshots that a run took. `done` is not called for them."""
        self._wanted = {shipment for shipment in self._wanted if shipment.run != run}

    def forget_all(self) -> None:
        """Cancel all uploads. `done` is not called for them."""
        self._wanted.clear()

    async def _work(self) -> None:
        while True:
            shipment = await self._queue.get()
            failures = refusals = 0
            while shipment in self._wanted:
                try:
                    given_up = await self._ship(shipment)
                except (HopyardError, OSError) as error:
                    failures += 1
                    refusals += not isinstance(error, _AWAY)
                    if refusals >= REFUSALS:
                        self._finish(shipment, str(error))
                        break
                    wait = self._backoff.wait(failures, self._rng)
                    _log.warning("%s: %s; next try in %.1f s", shipment, error, wait)
                    await asyncio.sleep(wait)
                else:
                    self._finish(shipment, given_up)

    async def _ship(self, shipment: Shipment) -> str:
        """Try once to upload a snapshot.

        Returns:
            Empty: the snapshot is stored. Otherwise an error message, because a retry cannot help: it is corrupt, or missing on
            disk and in the store.

        Raises:
            HopyardError, OSError: The upload failed; a retry may help.
        """
        path = self._snapshots.path(shipment.sha256)
        owner = shipment.run.stream
        try:
            if not path.exists():
                return "" if await self._store.has(shipment.sha256, owner) else _GONE
            # Small files are sent without a query first; the store ignores what it has.
            small = await asyncio.to_thread(size_of, path) <= _SMALL_BYTES
            if small or not await self._store.has(shipment.sha256, owner):
                await self._store.put(path, shipment.sha256, owner)
        except FileNotFoundError:
            return _GONE
        except DataLoss as error:
            if not await self._snapshots.discard_if_corrupt(shipment.sha256):
                raise  # It was damaged in transit.
            return str(error)
        return ""

    def _finish(self, shipment: Shipment, error: str) -> None:
        if shipment in self._wanted:
            if error:
                # A missing file was usually deleted by the scheduler, because a newer snapshot replaced it.
                _log.log(logging.INFO if error == _GONE else logging.ERROR, "%s is not stored: %s", shipment, error)
            self._wanted.discard(shipment)
            self._done(shipment, error)
