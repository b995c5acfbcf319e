"""Shipping snapshots to the store, behind the training."""

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
from hopyard_nodeagent.runs.run_key import RunKey
from hopyard_nodeagent.snapshots.disk import Snapshots
from hopyard_nodeagent.snapshots.store import BlobClient

_log = logging.getLogger(__name__)

CONCURRENCY: Final = 2
_SMALL_BYTES: Final = 64 * 1024

REFUSALS: Final = 5
_AWAY: Final = (Unavailable, TimedOut, Aborted)
"""What another try mends."""


_GONE: Final = "it is not on this node any more"


@dataclass(frozen=True, slots=True)
class Shipment:
    """A snapshot on its way to the store.

    Attributes:
        run: The run that took it and tells of it; attempt 0 if the scheduler ordered it.
        position: Where it was taken.
        sha256: Its hash.
        order: The number of the order; 0: it is its run's.
    """

    run: RunKey
    position: int
    sha256: str
    order: int = 0

    def __str__(self) -> str:
        run = self.run
        return f"snapshot {self.sha256} at {self.position} of job {run.job} of experiment {run.experiment}"


class Uploader:
    """Ships in order of arrival, two at a time, each until it is stored, nobody wants it any more, or it is refused.

    A store that is away is waited for without end. One that refuses (a blob too big, a full disk) is asked `REFUSALS`
    times, then the shipment is given up.
    """

    def __init__(
        self, snapshots: Snapshots, store: BlobClient, *, backoff: Backoff, done: Callable[[Shipment, str], None]
    ) -> None:
        """Call `done` with each shipment that is over, and why it was given up; empty: it was stored."""
        self._snapshots = snapshots
        self._store = store
        self._backoff = backoff
        self._done = done
        self._queue: asyncio.Queue[Shipment] = asyncio.Queue()
        self._wanted: set[Shipment] = set()
        # Waits between tries only spread the load; nothing that is to repeat depends on them.
        self._rng = random.Random()

    def start(self, background: Background) -> None:
        """Ship from now on."""
        for number in range(CONCURRENCY):
            background.start(self._work(), name=f"shipper-{number}")

    def ship(self, shipment: Shipment) -> None:
        """Ship a snapshot that lies in the snapshot folder; a second time while it is under way changes nothing."""
        if shipment not in self._wanted:
            self._wanted.add(shipment)
            self._queue.put_nowait(shipment)

    def pending(self, run: RunKey) -> bool:
        """Whether snapshots of a run are still on their way."""
        return any(shipment.run == run for shipment in self._wanted)

    def ships(self, sha256: str) -> bool:
        """Whether a snapshot is on its way."""
        return any(shipment.sha256 == sha256 for shipment in self._wanted)

    def forget(self, run: RunKey) -> None:
        """Give up the shipments of a run."""
        self._wanted = {shipment for shipment in self._wanted if shipment.run != run}

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
        """Try once; returns why no other try can help, empty: it is stored."""
        path = self._snapshots.path(shipment.sha256)
        owner = shipment.run.experiment
        try:
            if not path.exists():
                return "" if await self._store.has(shipment.sha256, owner) else _GONE
            # What is small is sent without asking first; the store keeps what it has.
            small = await asyncio.to_thread(size_of, path) <= _SMALL_BYTES
            if small or not await self._store.has(shipment.sha256, owner):
                await self._store.put(path, shipment.sha256, owner)
        except FileNotFoundError:
            return _GONE
        except DataLoss as error:
            if not await self._snapshots.discard_if_corrupt(shipment.sha256):
                raise  # it was damaged on its way
            return str(error)
        return ""

    def _finish(self, shipment: Shipment, error: str) -> None:
        if shipment in self._wanted:
            if error:
                # What is gone was let go by the scheduler, as a rule: a newer one has taken its place.
                _log.log(logging.INFO if error == _GONE else logging.ERROR, "%s is not stored: %s", shipment, error)
            self._wanted.discard(shipment)
            self._done(shipment, error)
