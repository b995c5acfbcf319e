"""Deletes copies of snapshots on nodes that no experiment needs.

The core orders the deletion of a copy when its experiment releases the snapshot. An agent that was away at that moment still has the
copy when it connects again. It must not be confused with a snapshot that this database does not know, because an older database was
restored, or because the folder was used by another cluster: that may be the only copy of a training that somebody still needs.

So the agent's record of the snapshot (which experiments took or needed it) is compared with the journals. If the journal of each of
these experiments mentions the snapshot, or the experiment was deleted with `hopyard rm`, the cluster has a record of the snapshot and
has released it: the copy is deleted at once. Any other copy stays until it has not been written or used for `grace_seconds`. The
agent deletes nothing without an order that names the snapshot.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeAlias

from hopyard.errors import DataLoss, HopyardError
from hopyard.policy.vocabulary import StreamId
from hopyard.v1 import appstat_pb2, resource_manager_pb2
from hopyard_scheduler.storage.snapshot_needs import SnapshotNeeds

if TYPE_CHECKING:
    from hopyard._net.server import Background
    from hopyard.v1 import appstat_pb2_grpc
    from hopyard_scheduler.agents.sessions import Session, Sessions
    from hopyard_scheduler.experiments.queries import ExperimentQueries
    from hopyard_scheduler.runtime.runtime import Runtime
    from hopyard_scheduler.storage.inventories import Inventories

_LOG = logging.getLogger(__name__)

DEFAULT_GRACE_SECONDS: Final = 7 * 86400.0
"""Default time in seconds without use after which a snapshot is deleted of which the cluster has no record."""

_Files: TypeAlias = Iterable[resource_manager_pb2.SnapshotFile]

_INTERVAL_SECONDS: Final = 3600.0
"""Seconds between two examinations of all nodes."""

_AT_ONCE: Final = 200
_LISTED_AT_ONCE: Final = 5000
_HASH: Final = re.compile(rb'"([0-9a-f]{64})"')


class UnneededCopies:
    """Deletes copies of snapshots on nodes that no experiment needs.

    Args:
        runtime: Provides the core, and the lock that is free only between two batches of events.
        sessions: The agent sessions of nodes.
        queries: Reads finished experiments.
        stub: Client of AppStat, for journals.
        inventories: Requests lists of the snapshots on nodes.
        background: Runs the examinations.
        grace_seconds: Time in seconds without use after which a snapshot is deleted of which the cluster has no record.
    """

    def __init__(
        self,
        runtime: Runtime,
        sessions: Sessions,
        queries: ExperimentQueries,
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub,
        inventories: Inventories,
        background: Background,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
    ) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._queries = queries
        self._stub = stub
        self._inventories = inventories
        self._background = background
        self._grace_seconds = grace_seconds
        self._found: dict[str, list[str]] = {}
        self._released: dict[str, list[str]] = {}
        self._told: dict[str, set[str]] = defaultdict(set)

    def found(self, node: str, sha256: str) -> None:
        """Schedule the examination of a snapshot that a node has announced and that no stream in the core has.

        Args:
            node: The id of the node.
            sha256: The hash of the snapshot.
        """
        if not self._found:
            self._background.start(self._examine_found(), name="unknown snapshots")
        self._found.setdefault(node, []).append(sha256)

    def released(self, node: str, sha256: str) -> None:
        """Schedule the deletion of a node's snapshot that a deleted experiment had, unless another experiment needs it.

        Args:
            node: The id of the node.
            sha256: The hash of the snapshot.
        """
        if not self._released:
            self._background.start(self._delete_released(), name="released snapshots")
        self._released.setdefault(node, []).append(sha256)

    async def run(self) -> None:
        """Examine all connected nodes every hour. Run until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_SECONDS)
            await self.examine_all()

    async def examine_all(self) -> None:
        """Examine all snapshots on connected nodes that are not in use. An error of AppStat is logged, and the snapshots stay."""
        await self._examine(self._all_idle(), complete=True)

    async def _all_idle(self) -> AsyncGenerator[tuple[Session, _Files]]:
        for session in self._sessions.connected():
            inventory = await self._inventories.ask(session)
            if inventory is not None:
                yield session, inventory.files

    async def _examine_found(self) -> None:
        await asyncio.sleep(0)  # The other snapshots of the same hello follow.
        found, self._found = self._found, {}
        await self._examine(self._listed(found), complete=False)

    async def _listed(self, found: Mapping[str, Sequence[str]]) -> AsyncGenerator[tuple[Session, _Files]]:
        for node, hashes in found.items():
            for start in range(0, len(hashes), _LISTED_AT_ONCE):
                session = self._sessions.of(node)
                if session is None:
                    break
                part = hashes[start : start + _LISTED_AT_ONCE]
                inventory = await self._inventories.ask(session, hashes=part)
                if inventory is not None:
                    named = set(part)
                    yield session, [one for one in inventory.files if one.sha256 in named]

    async def _delete_released(self) -> None:
        await asyncio.sleep(0)
        released, self._released = self._released, {}
        try:
            needs = await self._needs()
            for node, hashes in released.items():
                session = self._sessions.of(node)
                if session is not None:
                    await self._forget(session, needs, hashes)
        except HopyardError as error:
            _log_failure(error)

    async def _examine(self, listed: AsyncGenerator[tuple[Session, _Files]], *, complete: bool) -> None:
        """Delete those of the snapshots on nodes that no experiment needs, and that are on record or were not used for the grace.

        The finished experiments are read once for all nodes, and once more before anything is deleted. An error of AppStat is logged,
        and the snapshots stay.

        Args:
            listed: The session of each node with its snapshots.
            complete: Whether the lists have all snapshots of a node that are not in use.
        """
        needs: SnapshotNeeds | None = None
        unneeded: list[tuple[Session, list[str]]] = []
        try:
            async with aclosing(listed) as lists:
                async for session, files in lists:
                    strange = self._strange(files)
                    if strange:
                        needs = needs or await self._needs()
                        await needs.read(needs.experiments)  # Those that have left the core meanwhile.
                        strange = [one for one in strange if not needs.held(one.sha256)]
                    recorded = await self._recorded(strange)
                    deleted = {
                        one.sha256
                        for one in strange
                        if one.sha256 in recorded or one.unused_seconds >= self._grace_seconds
                    }
                    self._tell(session.node, [one for one in strange if one.sha256 not in deleted], complete)
                    if deleted:
                        unneeded.append((session, sorted(deleted)))
            if unneeded:
                # An experiment may have begun to need one of them, and ended, meanwhile.
                needs = await self._needs()
                for session, hashes in unneeded:
                    await self._forget(session, needs, hashes)
        except HopyardError as error:
            _log_failure(error)

    def _strange(self, files: _Files) -> list[resource_manager_pb2.SnapshotFile]:
        """Return the snapshots that no stream in the core needs."""
        streams = self._runtime.core.streams.values()
        return [one for one in files if not any(stream.snapshots.holds(one.sha256) for stream in streams)]

    async def _needs(self) -> SnapshotNeeds:
        needs = SnapshotNeeds(self._runtime, self._queries)
        await needs.list_experiments()
        await needs.read(needs.experiments)
        return needs

    async def _recorded(self, files: Sequence[resource_manager_pb2.SnapshotFile]) -> set[str]:
        """Return the hashes of the snapshots of which the cluster has a record: every experiment that the node names knows them.

        An experiment knows a snapshot if its journal mentions the hash, or if it was deleted (`hopyard rm`). A journal that cannot be
        read has no record.

        Raises:
            HopyardError: AppStat is unavailable.
        """
        wanted: dict[str, set[str]] = defaultdict(set)
        for one in files:
            for experiment in one.experiments:
                wanted[experiment].add(one.sha256)
        known: set[tuple[str, str]] = set()
        for experiment, hashes in wanted.items():
            deleted = StreamId(experiment) in self._runtime.core.cluster.deletions
            known.update(
                (experiment, sha256) for sha256 in (hashes if deleted else await self._mentioned(experiment, hashes))
            )
        return {
            one.sha256
            for one in files
            if one.experiments and all((experiment, one.sha256) in known for experiment in one.experiments)
        }

    async def _mentioned(self, stream: str, hashes: set[str]) -> set[str]:
        found: set[str] = set()
        try:
            async for response in self._stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=stream)):
                for record in response.records:
                    found |= hashes & {sha256.decode() for sha256 in _HASH.findall(record.payload)}
        except DataLoss as error:
            _LOG.warning("snapshots of %s stay on nodes, because its journal is damaged: %s", stream, error)
            return set()
        return found

    async def _forget(self, session: Session, needs: SnapshotNeeds, hashes: Sequence[str]) -> None:
        """Order a node to delete those of the snapshots that no experiment needs, between two batches of events."""
        async with self._runtime.turn:
            await needs.read(needs.experiments)  # Those that have left the core meanwhile.
            forget(session, [sha256 for sha256 in hashes if not needs.held(sha256)])

    def _tell(self, node: str, kept: Sequence[resource_manager_pb2.SnapshotFile], complete: bool) -> None:
        """Warn once of each snapshot that stays without a record. `complete`: the others of which it has warned are no longer there."""
        told = self._told[node]
        new = [one for one in kept if one.sha256 not in told]
        self._told[node] = {one.sha256 for one in kept} | (set() if complete else told)
        if new:
            _LOG.warning(
                "node %s has %d snapshots (%d bytes) that no experiment needs and of which this cluster has no record; each is "
                "deleted when it has not been used for %g days, and `hopyard gc` deletes them now",
                node,
                len(new),
                sum(one.size_bytes for one in new),
                self._grace_seconds / 86400.0,
            )


def forget(session: Session, hashes: Sequence[str]) -> None:
    """Order the agent of a session to delete snapshots."""
    for start in range(0, len(hashes), _AT_ONCE):
        order = resource_manager_pb2.ForgetSnapshots(sha256=hashes[start : start + _AT_ONCE])
        session.send(resource_manager_pb2.AgentSessionResponse(forget_snapshots=order))


def _log_failure(error: HopyardError) -> None:
    _LOG.warning("snapshots that no experiment may need stay on their nodes, because AppStat cannot be read: %s", error)
