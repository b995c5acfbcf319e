"""Garbage collection: finds and deletes blobs and files that no experiment needs, in the store and on connected nodes.

The core (the state machine of the engine) knows which snapshots unfinished experiments need. For finished experiments,
the rows in AppStat state it. A blob is deleted only between two batches, so that no experiment can begin to need it
between the check and the deletion. A blob that was written or requested recently is also retained, which protects
running uploads and the bundles of experiments that are about to be created.

A snapshot is kept "for reuse" or "for others" if its finished experiment does not need it and stores it only so that
later experiments with the same training can start from it.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hopyard._common.bounded_json import MAX_COUNT
from hopyard.client.transfer.blobs import BUNDLE_OWNER
from hopyard.errors import HopyardError
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import appstat_pb2, resource_manager_pb2

if TYPE_CHECKING:
    from hopyard._net.server import Background
    from hopyard.v1 import appstat_pb2_grpc, experiment_pb2
    from hopyard_engine.core.actions.snapshots.store_quota import StoreUsage
    from hopyard_scheduler.agents.sessions import Session, Sessions
    from hopyard_scheduler.experiments.queries import ExperimentQueries
    from hopyard_scheduler.runtime.runtime import Runtime
    from hopyard_scheduler.storage.store_quota import StoreQuota

_LOG = logging.getLogger(__name__)

DEFAULT_SECONDS = 600.0
"""Default minimum age in seconds of what is deleted: the time since it was last written or requested."""

STORE = "store"
BUNDLES = "code bundles that no experiment refers to"
UNHELD = "snapshots that their experiment does not hold"
FOR_OTHERS = "snapshots that finished experiments kept for later ones"
UNKNOWN = "snapshots of experiments that are not known"
UNOWNED = "bytes without an owner"
PARTIALS = "unfinished uploads and files"
COPIES = "snapshots that no experiment holds"

_AT_ONCE = 200
_NODE_SECONDS = 10.0
_SWEEP_SECONDS = 600.0


@dataclass(slots=True)
class Kept:
    """The snapshots that a finished experiment keeps in the store only for reuse by other experiments.

    Attributes:
        count: The number of snapshots.
        size: Their size in bytes.
        seconds: The training time in seconds that would produce them again.
        given_up: True if this garbage collection deletes some of them or, in a dry run, would delete some.
    """

    count: int = 0
    size: int = 0
    seconds: float = 0.0
    given_up: bool = False


@dataclass(slots=True)
class GarbageReport:
    """The result of a garbage collection.

    Attributes:
        found: Number of files and their size in bytes, by (kind of garbage, place). The place is `STORE` or the id of a
            node.
        notes: Messages for the user about data that the collection did not examine or delete.
        unneeded: The hashes in the argument `idle` of `collect` that no experiment needs.
        kept: The snapshots that each finished experiment keeps only for reuse by other experiments, by id of the owner
            (an experiment or a group).
        store: The usage of the store after the collection; None: the collection has not ended.
    """

    found: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unneeded: list[str] = field(default_factory=list)
    kept: dict[str, Kept] = field(default_factory=dict)
    store: StoreUsage | None = None

    def add(self, kind: str, place: str, count: int, size: int) -> None:
        """Add `count` files of `size` bytes in total to the garbage of a kind. No effect if `count` is 0.

        Args:
            kind: The kind of garbage, such as `PARTIALS`.
            place: `STORE`, or the id of a node.
            count: The number of files.
            size: Their total size in bytes.
        """
        if count:
            before = self.found.get((kind, place), (0, 0))
            self.found[kind, place] = (before[0] + count, before[1] + size)


class SnapshotNeeds:
    """Answers which owner needs which blob, from the core's present state and the rows of finished experiments in AppStat.

    Call `list_experiments` first, and `read` before questions about owners that may not be in the core. An owner is the id of a
    stream.

    Args:
        runtime: Provides the core.
        queries: Reads finished experiments.
        for_others: True: snapshots that a finished experiment keeps only for reuse are treated as needed by it. False:
            as not needed, so that they can be deleted.
    """

    def __init__(self, runtime: Runtime, queries: ExperimentQueries, *, for_others: bool = True) -> None:
        self._runtime = runtime
        self._queries = queries
        self._for_others = for_others
        self._finished: dict[str, set[str]] = {}
        # By owner: the training time of snapshots kept only for reuse, by hash.
        self._prices: dict[str, dict[str, float]] = {}
        self.experiments: dict[str, list[str]] = {}  # By group, because groups own snapshots.
        self.bundles: set[str] = set()

    async def list_experiments(self) -> None:
        """Read the ids of all experiments and the hashes of their code bundles."""
        for found in await self._queries.show_all():
            self.experiments.setdefault(found.group or found.id, []).append(found.id)
            self.bundles.add(found.bundle)

    async def read(self, experiments: Iterable[str]) -> None:
        """Read the snapshots of those of the given owners that are not in the core.

        It repeats until none is missing, because an experiment may leave the core during a read.

        Args:
            experiments: Ids of experiments and groups. Unknown ids are ignored.
        """
        known = [name for name in experiments if name in self.experiments]
        while unread := [n for n in known if n not in self._runtime.core.streams and n not in self._finished]:
            for name in unread:
                jobs = [job for experiment in self.experiments[name] for job in await self._queries.jobs(experiment)]
                self._note(name, jobs)

    async def price(self, owner: str) -> dict[str, float]:
        """Return, by hash, the seconds of training to reproduce each snapshot that an owner keeps only for reuse.

        The result is empty if `list_experiments` did not find the owner.
        """
        if owner in self.experiments and owner not in self._prices:
            jobs = [job for experiment in self.experiments[owner] for job in await self._queries.jobs(experiment)]
            self._prices[owner] = _prices(jobs)
        return self._prices.get(owner, {})

    def releases_reusable(self, owner: str) -> bool:
        """Return True if snapshots that an owner keeps only for reuse are treated as not needed, and so are deleted.

        False also for an owner whose snapshots `read` has not read.
        """
        return not self._for_others and owner in self._finished

    def _note(self, name: str, jobs: Sequence[experiment_pb2.Job]) -> None:
        held = {snapshot.sha256 for job in jobs for snapshot in job.snapshots}
        self._prices[name] = _prices(jobs)
        self._finished[name] = held if self._for_others else held - self._prices[name].keys()

    def has(self, owner: str, sha256: str) -> bool:
        """Return True if an owner needs a blob.

        Args:
            owner: The id of a stream that `read` has read or that is in the core, or `BUNDLE_OWNER` for code bundles.
                The
                empty text is the owner of blobs that were stored without a named owner; it needs every blob.
            sha256: The hash of the blob.
        """
        if owner == BUNDLE_OWNER:
            return sha256 in self.bundles or self._code_of_one_in_the_core(sha256)
        stream = self._runtime.core.streams.get(StreamId(owner))
        if stream is not None:
            return stream.snapshots.holds(sha256)
        return owner == "" or sha256 in self._finished.get(owner, ())

    def held(self, sha256: str) -> bool:
        """Return True if a stream in the core or a finished experiment that `read` has read needs a snapshot.

        Args:
            sha256: The hash of the snapshot.
        """
        books = self._runtime.core.streams.values()
        return any(stream.snapshots.holds(sha256) for stream in books) or any(
            sha256 in held for held in self._finished.values()
        )

    def _code_of_one_in_the_core(self, sha256: str) -> bool:
        streams = self._runtime.core.streams.values()
        return any(
            experiment.payload["bundle"] == sha256 for stream in streams for experiment in stream.experiments.values()
        )


class GarbageCollector:
    """Deletes blobs and files that no experiment needs.

    Args:
        runtime: Provides the core, and the lock that is free only between two batches of events.
        sessions: The agent sessions of nodes.
        queries: Reads finished experiments.
        stub: Client of AppStat.
        background: Runs the deletion of unknown snapshots that nodes report when they connect.
        quota: Provides the usage of the store.
    """

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        queries: ExperimentQueries,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
        background: Background,
        quota: StoreQuota,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._queries = queries
        self._quota = quota
        self._stub = stub
        self._background = background
        self._unknown: dict[str, list[str]] = {}
        self._one = asyncio.Lock()
        self._asked: dict[str, asyncio.Future[resource_manager_pb2.SnapshotInventory]] = {}

    async def collect(
        self,
        *,
        dry_run: bool,
        older_than: float = DEFAULT_SECONDS,
        foreign: bool = False,
        idle: Sequence[str] = (),
        for_others: bool = False,
    ) -> GarbageReport:
        """Collect garbage in the store and on all connected nodes, and return what was found.

        Args:
            dry_run: Only report garbage; delete nothing.
            older_than: Only blobs and files that were not written or requested in the last `older_than` seconds are
                deleted.
            foreign: In a store given by URL, also delete blobs that are not in this cluster's index.
            idle: Hashes of snapshots on stopped nodes. The report lists those that no experiment needs (`unneeded`).
            for_others: Also delete snapshots that finished experiments keep only for reuse.

        Raises:
            Unavailable: AppStat is unavailable. Deletions made before the error are not undone.
        """
        async with self._one:
            report, needs = GarbageReport(), SnapshotNeeds(self._runtime, self._queries, for_others=not for_others)
            await needs.list_experiments()
            await self._owned(report, needs, dry_run, older_than)
            await self._swept(report, dry_run, older_than, foreign)
            await self._nodes(report, needs, dry_run, older_than)
            await self._idle(report, needs, idle)
            if for_others and not dry_run:
                self._quota.reread()
            report.store = await self._quota.use()
            return report

    def arrived(self, inventory: resource_manager_pb2.SnapshotInventory) -> None:
        """Pass the snapshot inventory of a node to the collection that requested it. An inventory that none waits for is ignored."""
        asked = self._asked.get(inventory.ticket)
        if asked is not None and not asked.done():
            asked.set_result(inventory)

    def delete_unneeded(self, node: str, sha256: str) -> None:
        """Schedule the deletion of a node's snapshot that no stream in the core has, unless a finished experiment needs it.

        A finished experiment may need it, for example because a full store refused its upload.

        Args:
            node: The id of the node.
            sha256: The hash of the snapshot.
        """
        if not self._unknown:
            self._background.start(self._delete_unknown(), name="unknown snapshots")
        self._unknown.setdefault(node, []).append(sha256)

    async def _delete_unknown(self) -> None:
        try:
            needs = SnapshotNeeds(self._runtime, self._queries)
            await needs.list_experiments()
            await needs.read(needs.experiments)
        except HopyardError as error:
            _LOG.warning(
                "unknown snapshots stay on their nodes, because finished experiments cannot be read: %s", error
            )
            self._unknown.clear()
            return
        async with self._runtime.turn:
            unknown, self._unknown = self._unknown, {}
            for node, hashes in unknown.items():
                session = self._sessions.of(node)
                if session is not None:
                    _forget(session, [sha256 for sha256 in hashes if not needs.held(sha256)])

    # ------------------------------------------------------------------------------------------------------------- store

    async def _owned(self, report: GarbageReport, needs: SnapshotNeeds, dry_run: bool, older_than: float) -> None:
        """Remove owners from the blobs that they do not need, which deletes blobs without owners, and add these to the report.

        Args:
            report: Receives the deleted blobs.
            needs: States which owner needs which blob.
            dry_run: Only report the blobs that would be deleted.
            older_than: Only blobs that were not written or requested in the last `older_than` seconds are deleted.
        """
        token = ""
        while True:
            page = await self._stub.ListBlobs(appstat_pb2.ListBlobsRequest(page_token=token))
            old = [blob for blob in page.blobs if blob.unwanted_seconds >= older_than]
            await needs.read({owner for blob in old for owner in blob.owners})
            await self._priced(report, needs, page.blobs, older_than)
            garbage = {blob.sha256: blob for blob in old if not all(needs.has(o, blob.sha256) for o in blob.owners)}
            kinds = {sha256: await _kind(needs, blob) for sha256, blob in garbage.items()}
            if dry_run:
                gone = [b.sha256 for b in garbage.values() if not any(needs.has(o, b.sha256) for o in b.owners)]
            else:
                gone = await self._delete(needs, garbage.values(), older_than)
            for sha256 in gone:
                report.add(kinds[sha256], STORE, 1, garbage[sha256].size_bytes)
            token = page.next_page_token
            if not token:
                return

    async def _priced(
        self, report: GarbageReport, needs: SnapshotNeeds, blobs: Iterable[appstat_pb2.BlobInfo], older_than: float
    ) -> None:
        """Add to `report.kept` those of the given blobs that an owner keeps only for reuse by other experiments.

        Args:
            report: Receives their number, size and training time.
            needs: States which owner keeps which blob only for reuse.
            blobs: The blobs, with their owners.
            older_than: The collection deletes only blobs that were not written or requested in the last `older_than`
                seconds; it determines `Kept.given_up`. This method deletes nothing.
        """
        for blob in blobs:
            for owner in blob.owners:
                prices = await needs.price(owner)
                if blob.sha256 in prices:
                    kept = report.kept.setdefault(owner, Kept())
                    kept.count, kept.size = kept.count + 1, kept.size + blob.size_bytes
                    kept.seconds += prices[blob.sha256]
                    kept.given_up |= needs.releases_reusable(owner) and blob.unwanted_seconds >= older_than

    async def _delete(
        self, needs: SnapshotNeeds, blobs: Iterable[appstat_pb2.BlobInfo], older_than: float
    ) -> list[str]:
        """Remove owners that do not need their blobs, which deletes blobs without owners.

        Args:
            needs: States which owner needs which blob.
            blobs: The blobs, with their owners.
            older_than: Only blobs that were not written or requested in the last `older_than` seconds are deleted.

        Returns:
            The hashes of the deleted blobs.
        """
        by_owner: dict[str, list[str]] = defaultdict(list)
        for blob in blobs:
            for owner in blob.owners:
                if not needs.has(owner, blob.sha256):
                    by_owner[owner].append(blob.sha256)
        deleted: list[str] = []
        for owner, hashes in by_owner.items():
            for start in range(0, len(hashes), _AT_ONCE):
                # Between batches, no experiment begins to need a blob, and none leaves the core.
                async with self._runtime.turn:
                    await needs.read([owner])
                    part = [s for s in hashes[start : start + _AT_ONCE] if not needs.has(owner, s)]
                    request = appstat_pb2.DeleteBlobsRequest(sha256=part, owner=owner, unwanted_seconds=older_than)
                    deleted += (await self._stub.DeleteBlobs(request)).sha256
        return deleted

    async def _swept(self, report: GarbageReport, dry_run: bool, older_than: float, foreign: bool) -> None:
        """Delete unfinished uploads in the store, and files that are not in AppStat's index, and add both to the report.

        Args:
            report: Receives the deleted files.
            dry_run: Delete nothing, only report.
            older_than: Only files that were not written in the last `older_than` seconds are deleted.
            foreign: Delete files that are not in the index also in a store given by URL. False: such a store retains
                them, because another cluster may own them.
        """
        request = appstat_pb2.SweepBlobsRequest(dry_run=dry_run, older_than_seconds=older_than, foreign=foreign)
        swept = await self._stub.SweepBlobs(request, timeout=_SWEEP_SECONDS)
        report.add(PARTIALS, STORE, swept.partials, swept.partial_bytes)
        if swept.unknown_kept:
            report.notes.append(
                f"{swept.unknown} blobs with {swept.unknown_bytes} bytes in the store are not in this cluster's index; "
                "the store was given by URL, so they may be another cluster's and stay; --foreign deletes them"
            )
        else:
            report.add(UNOWNED, STORE, swept.unknown, swept.unknown_bytes)

    # ------------------------------------------------------------------------------------------------------------- nodes

    async def _nodes(self, report: GarbageReport, needs: SnapshotNeeds, dry_run: bool, older_than: float) -> None:
        asked = [self._ask(session, dry_run, older_than) for session in self._sessions.connected()]
        for session, inventory in await asyncio.gather(*asked):
            if inventory is None:
                report.notes.append(f"node {session.node} did not say what lies on its disk")
                continue
            if (found := _out_of_range(inventory)) is not None:
                wrong = f"node {session.node} says that {found} bytes or files lie on its disk, so its list is ignored"
                _LOG.warning("%s; allowed are 0 to %d, and together less than 2**63", wrong, MAX_COUNT)
                report.notes.append(wrong)
                continue
            report.add(PARTIALS, session.node, inventory.partials, inventory.partial_bytes)
            unknown = [one for one in inventory.files if not needs.held(one.sha256)]
            if unknown:
                await needs.read(needs.experiments)
            async with self._runtime.turn:
                await needs.read(needs.experiments if unknown else ())
                unknown = [one for one in unknown if not needs.held(one.sha256)]
                if not dry_run:
                    _forget(session, [one.sha256 for one in unknown])
            report.add(COPIES, session.node, len(unknown), sum(one.size_bytes for one in unknown))

    async def _ask(
        self, session: Session, dry_run: bool, older_than: float
    ) -> tuple[Session, resource_manager_pb2.SnapshotInventory | None]:
        ticket = uuid.uuid4().hex
        answer = self._asked[ticket] = asyncio.get_running_loop().create_future()
        wanted = resource_manager_pb2.ListNodeSnapshots(
            ticket=ticket, older_than_seconds=older_than, delete_partials=not dry_run
        )
        session.send(resource_manager_pb2.AgentSessionResponse(list_snapshots=wanted))
        try:
            async with asyncio.timeout(_NODE_SECONDS):
                return session, await answer
        except TimeoutError:
            return session, None
        finally:
            del self._asked[ticket]

    async def _idle(self, report: GarbageReport, needs: SnapshotNeeds, idle: Sequence[str]) -> None:
        if any(not needs.held(sha256) for sha256 in idle):
            await needs.read(needs.experiments)
            report.unneeded = [sha256 for sha256 in idle if not needs.held(sha256)]


def _prices(jobs: Iterable[experiment_pb2.Job]) -> dict[str, float]:
    """Return, by hash, the seconds of training to reproduce each snapshot that the jobs keep only for reuse.

    A snapshot that one of the jobs needs for itself too is omitted.
    """
    found: dict[str, float] = {}
    own = set[str]()
    for snapshot in (snapshot for job in jobs for snapshot in job.snapshots):
        if not snapshot.for_others:
            own.add(snapshot.sha256)
        else:
            found[snapshot.sha256] = min(snapshot.seconds_again, found.get(snapshot.sha256, snapshot.seconds_again))
    return {sha256: seconds for sha256, seconds in found.items() if sha256 not in own}


async def _kind(needs: SnapshotNeeds, blob: appstat_pb2.BlobInfo) -> str:
    if BUNDLE_OWNER in blob.owners:
        return BUNDLES
    if any([blob.sha256 in await needs.price(owner) for owner in blob.owners]):
        return FOR_OTHERS
    return UNHELD if any(owner in needs.experiments for owner in blob.owners) else UNKNOWN


def _out_of_range(inventory: resource_manager_pb2.SnapshotInventory) -> int | None:
    """Return a number of an inventory that is negative or too large, or the sum of its sizes if it exceeds int64; else None."""
    sizes = [one.size_bytes for one in inventory.files]
    numbers = (inventory.partials, inventory.partial_bytes, *sizes)
    found = next((one for one in numbers if not 0 <= one <= MAX_COUNT), None)
    return sum(sizes) if found is None and sum(sizes) >= 2**63 else found


def _forget(session: Session, hashes: Sequence[str]) -> None:
    for start in range(0, len(hashes), _AT_ONCE):
        forget = resource_manager_pb2.ForgetSnapshots(sha256=hashes[start : start + _AT_ONCE])
        session.send(resource_manager_pb2.AgentSessionResponse(forget_snapshots=forget))
