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
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hopyard._common.bounded_json import MAX_COUNT
from hopyard.client.transfer.blobs import BUNDLE_OWNER
from hopyard.v1 import appstat_pb2
from hopyard_scheduler.storage.inventories import out_of_range
from hopyard_scheduler.storage.snapshot_needs import SnapshotNeeds
from hopyard_scheduler.storage.unneeded_copies import forget

if TYPE_CHECKING:
    from hopyard.v1 import appstat_pb2_grpc, resource_manager_pb2
    from hopyard_engine.core.actions.snapshots.store_quota import StoreUsage
    from hopyard_scheduler.agents.sessions import Sessions
    from hopyard_scheduler.experiments.queries import ExperimentQueries
    from hopyard_scheduler.runtime.runtime import Runtime
    from hopyard_scheduler.storage.inventories import Inventories
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


class GarbageCollector:
    """Deletes blobs and files that no experiment needs.

    Args:
        runtime: Provides the core, and the lock that is free only between two batches of events.
        sessions: The agent sessions of nodes.
        queries: Reads finished experiments.
        stub: Client of AppStat.
        inventories: Requests lists of the snapshots on nodes.
        quota: Provides the usage of the store.
    """

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        queries: ExperimentQueries,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
        inventories: Inventories,
        quota: StoreQuota,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._queries = queries
        self._quota = quota
        self._stub = stub
        self._inventories = inventories
        self._one = asyncio.Lock()

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
        sessions = list(self._sessions.connected())
        asked = [self._inventories.ask(one, older_than=older_than, delete_partials=not dry_run) for one in sessions]
        for session, inventory in zip(sessions, await asyncio.gather(*asked), strict=True):
            if inventory is None:
                report.notes.append(f"node {session.node} did not say what lies on its disk")
                continue
            if (found := out_of_range(inventory)) is not None:
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
                    forget(session, [one.sha256 for one in unknown])
            for kind, those in _by_kind(needs, unknown).items():
                report.add(kind, session.node, len(those), sum(one.size_bytes for one in those))

    async def _idle(self, report: GarbageReport, needs: SnapshotNeeds, idle: Sequence[str]) -> None:
        if any(not needs.held(sha256) for sha256 in idle):
            await needs.read(needs.experiments)
            report.unneeded = [sha256 for sha256 in idle if not needs.held(sha256)]


def _by_kind(
    needs: SnapshotNeeds, files: Iterable[resource_manager_pb2.SnapshotFile]
) -> dict[str, list[resource_manager_pb2.SnapshotFile]]:
    """Return copies on a node by the kind of garbage: `COPIES` if all experiments that the node names are known, else `UNKNOWN`."""
    found: dict[str, list[resource_manager_pb2.SnapshotFile]] = defaultdict(list)
    for one in files:
        known = one.experiments and all(name in needs.experiments for name in one.experiments)
        found[COPIES if known else UNKNOWN].append(one)
    return found


async def _kind(needs: SnapshotNeeds, blob: appstat_pb2.BlobInfo) -> str:
    if BUNDLE_OWNER in blob.owners:
        return BUNDLES
    if any([blob.sha256 in await needs.price(owner) for owner in blob.owners]):
        return FOR_OTHERS
    return UNHELD if any(owner in needs.experiments for owner in blob.owners) else UNKNOWN
