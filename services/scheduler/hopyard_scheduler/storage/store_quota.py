"""The quota of the store: deletes snapshots when those of all experiments together exceed it.

`core.actions.snapshots.store_quota` selects the snapshots. The core (the state machine of the engine) knows the usage
of the streams that it has. This module supplies the usage of all others: the snapshots that they had in the store when
they left the core, or their rows in AppStat if they ended before this scheduler started. A stream that must give up
snapshots is replayed into the core first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from hopyard.errors import HopyardError, TimedOut, Unavailable
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import appstat_pb2, experiment_pb2
from hopyard_engine.core import UnknownStreamError
from hopyard_engine.core.actions.snapshots import store_quota
from hopyard_engine.core.actions.snapshots.store_quota import EvictionRank, StoreContents, StoredContents, StoreUsage
from hopyard_engine.core.events import SnapshotsGivenUp, StoreQuotaSet
from hopyard_engine.core.state.stream import Stream
from hopyard_scheduler.storage.store_usage import of_rows

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc
    from hopyard_scheduler.experiments.queries import ExperimentQueries
    from hopyard_scheduler.runtime.runtime import Runtime

_LOG = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.25
MOST_SECONDS: Final = 30.0
_IDLE: Final = 10
"""Pause between two checks: 10 times the duration of the last one, within `PAUSE_SECONDS` and `MOST_SECONDS`."""

AGAIN_SECONDS: Final = 5.0
"""Interval in seconds of the checks while needed snapshots exceed the quota."""

_AT_ONCE: Final = 1000
_JOBS: Final = 200
_TOLD_AGAIN: Final = 1.1


class StoreQuota:
    """Enforces the quota of the store: the maximum size of the snapshots of all experiments.

    Args:
        runtime: Provides the core, with the unfinished and the most recently finished experiments.
        queries: Reads all other experiments.
        stub: Client of AppStat.
        load: Replays the experiment with a given id into the core.
    """

    def __init__(
        self,
        runtime: Runtime,
        queries: ExperimentQueries,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
        load: Callable[[str], Awaitable[object]],
    ) -> None:
        self._runtime = runtime
        self._queries = queries
        self._stub = stub
        self._load = load
        self._finished: dict[StreamId, list[StoredContents]] = {}  # By stream that is not in the core.
        self._elsewhere = 0  # The sum of their sizes; equal contents of several streams are added repeatedly.
        self._read = False
        self._reading = asyncio.Lock()
        self._stuck: set[StreamId] = set()
        self._wake = asyncio.Event()
        self._seen = -1
        self._told = 0
        self.above = 0
        """Bytes above the quota that are still needed, as of the last check."""

    async def set(self, size: int) -> None:
        """Set the quota to `size` bytes and record it in the journal; 0: no quota."""
        quota = size or None
        if quota != self._runtime.core.cluster.store_quota:
            await self._runtime.apply(StoreQuotaSet(self._runtime.clock(), quota))

    @property
    def warning(self) -> str:
        """A sentence for people about how far the needed snapshots exceed the quota; empty: they do not exceed it."""
        if not self.above:
            return ""
        return (
            f"snapshots take {self.above} bytes more than the quota of the store; all that is left is needed, so none is "
            "dropped"
        )

    def leaves(self, stream: Stream) -> None:
        """Remember which snapshots a finished stream that leaves the core has in the store.

        Without a quota they are not remembered, but read from AppStat if a quota is set later.
        """
        if self._runtime.core.cluster.store_quota is None:
            self._read = False
            return
        self._finished[stream.id] = store_quota.stored_contents(stream)
        self._elsewhere += sum(one.size for one in self._finished[stream.id])

    def reread(self) -> None:
        """Make the next check read all finished experiments again, because their snapshots in the store have changed."""
        self._read = False
        self._wake.set()

    def changed(self) -> None:
        """Start a check if the size of the snapshots in the core has changed and the quota is exceeded.

        It is called after each batch, and therefore computes only a sum.
        """
        quota = self._runtime.core.cluster.store_quota
        if quota is None:
            self.above = 0
            return
        size = sum(stream.snapshots.size for stream in self._runtime.core.streams.values())
        if size != self._seen:
            self._seen = size
            if size + self._elsewhere > quota or self.above:
                self._wake.set()

    async def run(self) -> None:
        """Check the store, and delete snapshots, whenever the quota may be exceeded. Runs until cancelled."""
        self._wake.set()
        while True:
            try:
                async with asyncio.timeout(AGAIN_SECONDS if self.above else None):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            began = time.monotonic()
            try:
                await self._make_room()
            except HopyardError as error:
                _LOG.warning("the quota of the store is not enforced until this error is fixed: %s", error)
                self._wake.set()
            await asyncio.sleep(min(max(PAUSE_SECONDS, _IDLE * (time.monotonic() - began)), MOST_SECONDS))

    async def use(self) -> StoreUsage:
        """Return the present usage of the store and its quota."""
        return (await self._room()).use(self._runtime.core.cluster.store_quota)

    # ------------------------------------------------------------------------------------------------------- internals

    async def _make_room(self) -> None:
        quota = self._runtime.core.cluster.store_quota
        if quota is None:
            return
        found = await self._room()
        gone = await asyncio.to_thread(found.keep_within, quota)
        by_owner: dict[StreamId, list[str]] = {}
        for one in gone:
            for owner in one.owners:
                by_owner.setdefault(owner, []).append(one.sha256)
        for owner, hashes in by_owner.items():
            await self._give_up(owner, hashes)
        self._tell(max(found.used - quota, 0), quota)

    async def _room(self) -> StoreContents:
        """Return the snapshots of all streams in the store, with their ranks for eviction, read in parts between batches.

        Changes during the reading are harmless: when a stream receives the event `SnapshotsGivenUp`, it deletes only
        the snapshots that it does not need at that time.
        """
        await self._read_finished()
        core = self._runtime.core
        holdings = {name: held for name in list(core.streams) if (held := await self._held(name)) is not None}
        for name in core.streams:
            self._finished.pop(name, None)
        self._elsewhere = sum(one.size for held in self._finished.values() for one in held)
        holdings = {**self._finished, **holdings}
        for name in holdings:
            if name in self._stuck or core.awaits_answer(name):  # It cannot give up anything now.
                holdings[name] = [StoredContents(one.sha256, one.size, EvictionRank.NEEDED) for one in holdings[name]]
        return await asyncio.to_thread(StoreContents, holdings)

    async def _held(self, name: StreamId) -> list[StoredContents] | None:
        """Return records of the snapshots that a stream has in the store or is uploading; None: the stream is no longer in the core."""
        found: list[StoredContents] = []
        jobs: list[str] | None = None
        while jobs is None or jobs:
            async with self._runtime.turn:
                stream = self._runtime.core.streams.get(name)
                if stream is None:
                    return None
                if jobs is None:
                    jobs, found = list(stream.jobs), store_quota.lent(stream)
                for job in [stream.jobs[each] for each in jobs[:_JOBS] if each in stream.jobs]:
                    found += store_quota.of_job(stream, job)
                del jobs[:_JOBS]
        return found

    async def _give_up(self, owner: StreamId, hashes: Sequence[str]) -> None:
        try:
            if owner not in self._runtime.core.streams:
                await self._load(owner)
            for start in range(0, len(hashes), _AT_ONCE):
                part = tuple(hashes[start : start + _AT_ONCE])
                await self._runtime.apply(SnapshotsGivenUp(self._runtime.clock(), owner, part))
        except UnknownStreamError:
            self._wake.set()  # The stream has just left the core; the next check finds it among the finished ones.
        except (Unavailable, TimedOut):
            raise
        except Exception:  # noqa: BLE001 - any error concerns only this journal
            _LOG.exception(
                "experiment %s cannot give up snapshots for the quota of the store: its journal cannot be read", owner
            )
            self._stuck.add(owner)
            self._wake.set()

    def _tell(self, above: int, quota: int) -> None:
        self.above = above
        if above > self._told * _TOLD_AGAIN:
            _LOG.warning("%s (%d bytes)", self.warning, quota)
        self._told = max(above, self._told) if above else 0

    async def _read_finished(self) -> None:
        """Read the rows of streams that are not in the core, unless they have been read and `reread` was not called since."""
        async with self._reading:
            if self._read:
                return
            self._read = True  # A later `reread` resets it.
            try:
                await self._read_rows()
            except BaseException:
                self._read = False
                raise

    async def _read_rows(self) -> None:
        streams: dict[StreamId, list[experiment_pb2.Experiment]] = {}
        for found in await self._queries.show_all():
            streams.setdefault(StreamId(found.group or found.id), []).append(found)
        for name, experiments in streams.items():
            if name not in self._runtime.core.streams:
                jobs = [job for experiment in experiments for job in await self._queries.jobs(experiment.id)]
                self._finished[name] = await self._there(of_rows(experiments, jobs))

    async def _there(self, held: list[StoredContents]) -> list[StoredContents]:
        """Return those of the records `held` whose snapshots the store has.

        The rows of a finished stream may name others, because a deletion is not always recorded in a journal.
        """
        there = set[str]()
        for start in range(0, len(held), _AT_ONCE):
            hashes = [one.sha256 for one in held[start : start + _AT_ONCE]]
            there.update((await self._stub.HasBlobs(appstat_pb2.HasBlobsRequest(sha256=hashes))).sha256)
        return [one for one in held if one.sha256 in there]
