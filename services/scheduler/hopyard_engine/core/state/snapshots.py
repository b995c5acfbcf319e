"""The register of all snapshots of a stream: where they are and who needs them.

A snapshot is kept while it is pinned (a run loads it, or a forked job starts from it) or while its job retains it. A job retains

- its newest `keep_latest` snapshots;
- the fallbacks for the loss of a node: its newest STORED snapshot and, while its newest snapshot is deferred and on one node only, the
  newest older one that is stored or on another node;
- its best `keep_best` snapshots;
- the snapshots that the policy requested.

`actions.snapshots.eviction` selects the snapshots to delete when they exceed the quota. Snapshots of earlier experiments are *lent*:
they belong to no job, but jobs may start from them (`actions.earlier_results`), so the store keeps them for this experiment too.

Contents are the saved data of a snapshot, identified by its hash. Two snapshots can have the same contents. These are deleted when the
last entry with them is gone and they are not lent. `SnapshotBook.released` returns contents that can be deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from hopyard_engine.core.state.change_log import ChangeLog
from hopyard_engine.core.state.snapshot_entries import (
    Dropped,
    Keep,
    Shipper,
    SnapshotEntry,
    SnapshotId,
    reserve,
    retained,
)
from hopyard_engine.core.state_machines.snapshot_states import SnapshotState, change_snapshot
from hopyard_engine.core.types import SnapshotInfo


class SnapshotBook:
    """Represents all snapshots of a stream, one `SnapshotEntry` for each pair of job and position.

    Args:
        lent: Hashes of lent snapshots of earlier experiments.

    Attributes:
        touched: Log of the jobs whose snapshots changed.
    """

    def __init__(self, lent: Iterable[str] = ()) -> None:
        self._lent: dict[str, set[str]] = {sha256: set() for sha256 in lent}  # Nodes with copies that no entry has.
        self.touched = ChangeLog()
        self._entries: dict[str, dict[int, SnapshotEntry]] = {}
        self._copies: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self._size = 0
        self._unsettled: dict[SnapshotId, SnapshotEntry] = {}
        self._deferred: dict[SnapshotId, SnapshotEntry] = {}
        self._orders = 0
        self._added = 0
        self._lost_pins: dict[SnapshotId, set[str]] = {}  # They apply again if the snapshot is retaken.
        self._own: dict[
            str, set[str]
        ] = {}  # Nodes that keep a copy for this stream, because its runs took it or fetched it there.

    def get(self, job: str, position: int) -> SnapshotEntry | None:
        """Return the entry of a job's snapshot at a position, or None if there is no such snapshot."""
        return self._entries.get(job, {}).get(position)

    @property
    def settled(self) -> bool:
        """Whether no upload of any snapshot is in progress."""
        return not self._unsettled

    def settled_of(self, belongs: Callable[[str], bool]) -> bool:
        """Return whether no upload is in progress for the jobs for whose id `belongs` returns True."""
        return not any(belongs(job) for job, _ in self._unsettled)

    @property
    def deferred(self) -> list[SnapshotId]:
        """The ids of the snapshots whose upload waits for an order."""
        return list(self._deferred)

    def wanted(self, belongs: Callable[[str], bool]) -> list[SnapshotId]:
        """Return the deferred snapshots that must be uploaded so that some jobs can resume after the loss of nodes.

        These are the snapshots, with a copy on a node, of the jobs for whose id `belongs` returns True. Left out is the fallback that a
        job keeps only until its newest snapshot is stored or on several nodes (`reserve`).
        """
        return [
            (job, position)
            for (job, position), entry in self._deferred.items()
            if entry.nodes and belongs(job) and position not in reserve(self._entries[job], self.positions(job))
        ]

    def positions(self, job: str) -> list[int]:
        """Return the positions of the snapshots of a job that a run can load now, ascending."""
        return sorted(p for p, e in self._entries.get(job, {}).items() if e.available)

    def newest(self, job: str) -> SnapshotEntry | None:
        """Return a job's available snapshot with the highest position, or None if it has none."""
        positions = self.positions(job)
        return self._entries[job][positions[-1]] if positions else None

    @property
    def borrowed_count(self) -> int:
        """The number of snapshots that earlier experiments have lent to this stream."""
        return len(self._lent)

    def holds(self, sha256: str) -> bool:
        """Return whether a snapshot of a job, or one that an earlier experiment lent, has the contents with this hash."""
        return sha256 in self._copies or sha256 in self._lent

    @property
    def size(self) -> int:
        """The size of all registered snapshots in bytes. Equal contents are counted once."""
        return self._size

    def vital(self, job: str) -> set[int]:
        """Return the positions from which a job may resume: its newest available snapshot and the fallbacks for the loss of a node.

        Empty if the job has no available snapshot.
        """
        by_position = self._entries.get(job, {})
        available = self.positions(job)
        newest = {available[-1]} if available else set[int]()
        stored = [p for p in available if by_position[p].stored]
        return newest | set(stored[-1:]) | reserve(by_position, available)

    def latest(self, job: str, how_many: int) -> set[int]:
        """Return the positions of a job's newest available snapshots, at most `how_many` (>= 1)."""
        return set(self.positions(job)[-how_many:])

    def entries(self) -> Iterable[SnapshotEntry]:
        """Iterate over the entries of all jobs."""
        for by_position in self._entries.values():
            yield from by_position.values()

    def count(self, job: str) -> int:
        """Return the number of a job's snapshots, available or not."""
        return len(self._entries.get(job, {}))

    def least(self, job: str) -> bool:
        """Return whether a job has no snapshot, or exactly one, which is available.

        `collect` then has nothing to drop while the job retains snapshots, because the newest available one is always retained.
        """
        by_position = self._entries.get(job)
        return not by_position or (len(by_position) == 1 and next(iter(by_position.values())).available)

    def of(self, job: str) -> list[SnapshotEntry]:
        """Return a job's snapshots, ordered by position, ascending."""
        return [e for _, e in sorted(self._entries.get(job, {}).items())]

    def taken(
        self, job: str, info: SnapshotInfo, node: str, attempt: int = 0, *, deferred: bool = False
    ) -> list[Dropped]:
        """Record a snapshot that a run took. It replaces a snapshot with other contents at the same position.

        Args:
            job: Id of the job.
            info: The snapshot.
            node: The node that has it.
            attempt: Attempt number of the run.
            deferred: Whether the upload waits for an order. If False, the run uploads the snapshot.

        Returns:
            The contents of a replaced snapshot, if they can be deleted.
        """
        entry = self.get(job, info.position)
        dropped: list[Dropped] = []
        if entry is not None and entry.info.sha256 != info.sha256:
            old, pins = entry, entry.pins
            entry = self._add(SnapshotEntry(job, info, pins=pins))
            dropped = self.released(old)
        if entry is None:
            entry = self._add(SnapshotEntry(job, info, pins=self._lost_pins.pop((job, info.position), set())))
        entry.nodes.add(node)
        self._own.setdefault(info.sha256, set()).add(node)
        entry.attempts.add(attempt)
        entry.by_order = deferred
        if not deferred:
            entry.shipper = Shipper(node, attempt)
            if not entry.stored:
                change_snapshot(entry, SnapshotState.UPLOADING, f"attempt {attempt} took it")
        elif entry.shipper is None and not entry.stored:
            change_snapshot(entry, SnapshotState.DEFERRED, f"attempt {attempt} took it")
        self._note(entry)
        return dropped

    def take_over(self, job: str, info: SnapshotInfo) -> None:
        """Register a snapshot that an earlier experiment lent, which is in the store, as a snapshot of a job.

        Does nothing if the job has a snapshot at that position.
        """
        if self.get(job, info.position) is None:
            pins = self._lost_pins.pop((job, info.position), set())
            self._add(SnapshotEntry(job, info, state=SnapshotState.STORED, pins=pins))

    def copy(self, job: str, source: SnapshotEntry) -> SnapshotEntry | None:
        """Register another job's snapshot as a snapshot of `job` too, unless `job` has an available one at that position.

        Returns:
            The new entry if the caller must order its upload, because the snapshot is not in the store and its upload is not deferred.
            None if no order is needed, or nothing was registered.
        """
        known = self.get(job, source.info.position)
        if known is not None and known.available:
            return None
        if known is not None:
            self.remove(known)
            self.released(known)
        pins = self._lost_pins.pop((job, source.info.position), set())
        if source.stored:
            state = SnapshotState.STORED
        else:
            state = SnapshotState.DEFERRED if source.by_order else SnapshotState.LOCAL
        own = self._add(SnapshotEntry(job, source.info, set(source.nodes), state, pins, by_order=source.by_order))
        self._note(own)
        return own if own.state is SnapshotState.LOCAL else None

    def add_borrowed(self, hashes: Iterable[str]) -> None:
        """Add snapshots that earlier experiments lend, given by their hashes: jobs may start from them, so the store must keep them."""
        for sha256 in hashes:
            self._lent.setdefault(sha256, set())

    def release_borrowed(self, hashes: Iterable[str]) -> list[Dropped]:
        """End the loan of the snapshots of earlier experiments with these hashes. Those registered by `take_over` remain.

        Returns:
            The contents that can be deleted.
        """
        ended = [(sha256, self._lent.pop(sha256)) for sha256 in dict.fromkeys(hashes) if sha256 in self._lent]
        return [Dropped(sha256, tuple(sorted(nodes))) for sha256, nodes in ended if sha256 not in self._copies]

    def _note(self, entry: SnapshotEntry) -> None:
        """Update the sets of uploading and deferred snapshots after a change of `entry`."""
        key = (entry.job, entry.info.position)
        if not entry.settled and self.get(*key) is entry:
            self._unsettled[key] = entry
        elif self._unsettled.get(key) is entry:
            del self._unsettled[key]
        if entry.deferred and self.get(*key) is entry:
            self._deferred[key] = entry
        elif self._deferred.get(key) is entry:
            del self._deferred[key]

    def _add(self, entry: SnapshotEntry) -> SnapshotEntry:
        self.touched.touch(entry.job)
        self._added += 1
        entry.number = self._added
        self._entries.setdefault(entry.job, {})[entry.info.position] = entry
        self._copies[entry.info.sha256] += 1
        if self._copies[entry.info.sha256] == 1:
            self._sizes[entry.info.sha256] = entry.info.size
            self._size += entry.info.size
        return entry

    def remove(self, entry: SnapshotEntry) -> None:
        """Remove the entry of a snapshot that cannot be loaded any more. The caller must pass the entry to `released`."""
        self.touched.touch(entry.job)
        del self._entries[entry.job][entry.info.position]
        self._deferred.pop((entry.job, entry.info.position), None)
        if entry.pins:
            self._lost_pins[entry.job, entry.info.position] = entry.pins

    def _forget(self, sha256: str) -> bool:
        """Remove one reference to the contents with this hash.

        Returns:
            Whether the contents are unused now: neither an entry nor a loan from an earlier experiment refers to them.
        """
        self._copies[sha256] -= 1
        if self._copies[sha256]:
            return False
        del self._copies[sha256]
        self._own.pop(sha256, None)
        self._size -= self._sizes.pop(sha256)
        return sha256 not in self._lent

    def fetched(self, job: str, position: int, node: str) -> None:
        """Record that a run loaded a snapshot on `node`, so that the node has a copy too. An unknown snapshot is ignored."""
        entry = self.get(job, position)
        if entry is not None:
            entry.nodes.add(node)
            self._own.setdefault(entry.info.sha256, set()).add(node)

    def keeps(self, node: str, sha256: str) -> bool:
        """Return whether `node` must keep its copy of the contents with this hash until this stream has them in the store.

        This is true if a run of this stream saved or loaded the copy there. False if the node has a copy only for another stream: runs
        of this stream can load that copy, but this stream does not prevent its deletion.
        """
        return node in self._own.get(sha256, ())

    def stored(self, job: str, position: int, sha256: str, attempt: int = 0) -> bool:
        """Record that the snapshot with the hash `sha256`, which a run with this attempt number took, is in the store.

        Returns:
            Whether this was recorded. False if the snapshot is unknown, has other contents now, or was not taken by this attempt.
            Then nothing changes.
        """
        entry = self.get(job, position)
        if entry is None or entry.info.sha256 != sha256 or attempt not in entry.attempts:
            return False
        change_snapshot(entry, SnapshotState.STORED, f"attempt {attempt} stored it")
        self._note(entry)
        return True

    def given_up(self, job: str, position: int, sha256: str, attempt: int) -> bool:
        """Record that an attempt's upload of a snapshot failed permanently. The copies on nodes remain.

        Returns:
            Whether this was recorded. False if this attempt was not uploading the snapshot. Then nothing changes.
        """
        entry = self.get(job, position)
        if entry is None or entry.info.sha256 != sha256 or entry.shipper is None or entry.shipper.attempt != attempt:
            return False
        entry.shipper = None
        if not entry.stored:
            change_snapshot(entry, SnapshotState.LOCAL, f"attempt {attempt} gave it up")
        self._note(entry)
        return True

    def unshipped(self, node: str, disk: frozenset[str], shipping: Callable[[str, int], bool]) -> list[SnapshotId]:
        """Return the snapshots on the disk of a node that are not in the store, not deferred, and not being uploaded.

        Args:
            node: The node.
            disk: Hashes of the snapshots on its disk.
            shipping: Returns whether the node still has the process of a job's attempt, given the job id and the attempt number. A
                snapshot counts as being uploaded only while the process that uploads it exists, or another node uploads it.
        """
        return [
            (e.job, e.info.position)
            for e in self.entries()
            if not e.stored
            and not e.deferred
            and e.info.sha256 in disk
            and (e.shipper is None or (e.shipper.node == node and not shipping(e.job, e.shipper.attempt)))
        ]

    def left(self, node: str) -> list[SnapshotId]:
        """Return the snapshots on `node` that are uploaded only by order, are neither stored nor DEFERRED, and that nobody uploads."""
        return [
            (e.job, e.info.position)
            for e in self.entries()
            if e.by_order and not e.stored and not e.deferred and e.shipper is None and node in e.nodes
        ]

    def order(self, snapshot: SnapshotId, node: str) -> None:
        """Assign the upload of a snapshot to `node`, with a new order number.

        Does nothing if the node does not have the snapshot, or if the snapshot is stored or has an uploader.
        """
        entry = self.get(*snapshot)
        if entry is not None and entry.shipper is None and not entry.stored and node in entry.nodes:
            self._orders += 1
            entry.shipper = Shipper(node, order=self._orders)
            change_snapshot(entry, SnapshotState.ORDERED, f"order {self._orders} to {node}")
            self._note(entry)

    def endangered(self, node: str, others: Collection[str] = ()) -> list[SnapshotId]:
        """Return the snapshots on `node` that nobody uploads, and that neither the store nor a node besides `node` and `others` has."""
        away = {node, *others}
        return [
            (e.job, e.info.position)
            for e in self.entries()
            if e.state in (SnapshotState.DEFERRED, SnapshotState.LOCAL) and node in e.nodes and e.nodes <= away
        ]

    def order_upload(self, snapshot: SnapshotId) -> str:
        """Assign the upload of a snapshot that nobody uploads to a node that has it. Return the name of the node.

        Raises:
            KeyError: There is no such snapshot.
            ValueError: No node has it.
        """
        entry = self._entries[snapshot[0]][snapshot[1]]
        node = min(entry.nodes)
        self.order(snapshot, node)
        return node

    def ordered(self, node: str) -> list[SnapshotEntry]:
        """Return the snapshots that `node` must upload by orders that it has not answered, sorted by order number."""
        found = [e for e in self._unsettled.values() if e.shipper and e.shipper.order and e.shipper.node == node]
        return sorted(found, key=lambda e: e.shipper or Shipper(node))

    def of_order(self, snapshot: SnapshotId, node: str, order: int) -> SnapshotEntry | None:
        """Return the snapshot that upload order number `order` to `node` refers to.

        Returns:
            None if the order has been answered, or if the snapshot is gone or was replaced.
        """
        entry = self.get(*snapshot)
        return entry if entry is not None and not entry.stored and entry.shipper == Shipper(node, 0, order) else None

    def shipped(self, entry: SnapshotEntry, error: str) -> None:
        """Record a node's answer to an upload order: the snapshot is in the store, or its upload failed (`error` is not empty)."""
        change_snapshot(
            entry, SnapshotState.LOCAL if error else SnapshotState.STORED, error or "the node has uploaded it"
        )
        if error:
            entry.shipper = None
        self._note(entry)

    def pin(self, snapshot: SnapshotId, holder: str) -> None:
        """Add a pin to a snapshot, which protects it from deletion. `holder` is the name of the run or job that needs it.

        Raises:
            KeyError: There is no such snapshot.
        """
        self._entries[snapshot[0]][snapshot[1]].pins.add(holder)

    def unpin(self, snapshot: SnapshotId, holder: str) -> None:
        """Remove the pin of `holder` from a snapshot. Does nothing if the snapshot or the pin does not exist."""
        entry = self.get(*snapshot)
        if entry is not None:
            entry.pins.discard(holder)
        elif snapshot in self._lost_pins:
            self._lost_pins[snapshot].discard(holder)
            if not self._lost_pins[snapshot]:
                del self._lost_pins[snapshot]

    def node_lost(self, node: str, kept: frozenset[str] = frozenset()) -> list[SnapshotEntry]:
        """Remove the copies on a lost node.

        Args:
            node: The node.
            kept: Hashes of snapshots that are known to be on its disk. These copies remain.

        Returns:
            The removed entries of snapshots with no other copy. The caller must pass them to `released`.
        """
        lost = []
        for sha256 in self._own.keys() - kept:
            self._own[sha256].discard(node)
        for by_position in self._entries.values():
            for position in [p for p, e in by_position.items() if node in e.nodes and e.info.sha256 not in kept]:
                entry = by_position[position]
                entry.nodes.discard(node)
                if not entry.available:
                    self.remove(entry)
                    lost.append(entry)
        return lost

    def not_shipping(self, node: str, gone: Callable[[str, int], bool], but: frozenset[str] = frozenset()) -> None:
        """Record that a node no longer uploads the snapshots for which `gone` returns True.

        Those that are not stored become DEFERRED if they are uploaded only by order and another node has a copy, else LOCAL.

        Args:
            node: The node.
            gone: Returns whether the upload by a job's attempt has ended, given the job id and the attempt number (0: an upload by
                order).
            but: Hashes of snapshots whose uploads continue.
        """
        for entry in self.entries():
            if entry.info.sha256 in but:
                continue
            if entry.shipper is not None and entry.shipper.node == node and gone(entry.job, entry.shipper.attempt):
                entry.shipper = None
                if not entry.stored:  # Another node may upload it.
                    elsewhere = entry.by_order and bool(entry.nodes - {node})
                    change_snapshot(
                        entry,
                        SnapshotState.DEFERRED if elsewhere else SnapshotState.LOCAL,
                        f"{node} does not upload it any more",
                    )
                self._note(entry)

    def may_evict(self, node: str) -> set[str]:
        """Return the hashes of the snapshots that `node` may delete to free disk space, as far as this stream is concerned.

        These are the stored ones, and those that the node has only for another stream (see `evicted`).
        """
        return {e.info.sha256 for e in self.entries() if node in e.nodes and self._may_go(e, node)}

    def evicted(self, node: str, sha256s: frozenset[str]) -> tuple[list[str], list[SnapshotEntry]]:
        """Record that a node deleted copies to free disk space.

        A copy that the node must keep for this stream (`keeps`) and that is not known to be STORED is still considered present: an
        agent deletes such copies only after it has stored them, and its report of the upload follows on the run's channel.

        Args:
            node: The node.
            sha256s: Hashes of the deleted copies.

        Returns:
            The ids of the jobs whose copies are gone, and the removed entries of snapshots with no other copy. The caller must pass
            the entries to `released`.
        """
        jobs, lost = [], []
        for entry in list(self.entries()):
            if node in entry.nodes and entry.info.sha256 in sha256s and self._may_go(entry, node):
                entry.nodes.discard(node)
                jobs.append(entry.job)
                if not entry.available:
                    self.remove(entry)
                    lost.append(entry)
        return jobs, lost

    def _may_go(self, entry: SnapshotEntry, node: str) -> bool:
        return entry.stored or not self.keeps(node, entry.info.sha256)

    def moved(self, here: frozenset[str]) -> list[SnapshotEntry]:
        """Update all entries after an import into another cluster: no node has a copy.

        Args:
            here: Hashes of the snapshots that were imported into the store.

        Returns:
            The removed entries of the snapshots that were not imported. The caller must pass them to `released`.
        """
        lost = []
        self._own.clear()
        for entry in list(self.entries()):
            entry.nodes.clear()
            entry.shipper = None
            if entry.info.sha256 in here:
                change_snapshot(entry, SnapshotState.STORED, "it came with the experiment")
                self._note(entry)
            else:
                self.remove(entry)
                lost.append(entry)
        return lost

    def node_holds(self, node: str, sha256s: frozenset[str]) -> None:
        """Record the copies that `node` announced to have on its disk, given by their hashes. Unknown hashes are ignored."""
        for entry in self.entries():
            if entry.info.sha256 in sha256s:
                entry.nodes.add(node)

    def collect(
        self,
        job: str,
        keep: bool,
        value: Callable[[int], float | None],
        how_many: Keep = Keep(),  # noqa: B008 - immutable
        asked: Collection[int] = (),
    ) -> list[Dropped]:
        """Drop the snapshots of a job that are neither pinned, nor requested by the policy, nor retained by the job.

        Args:
            job: Id of the job.
            keep: Whether the job retains its newest, best and fallback snapshots. If False, only pinned ones and those in `asked`
                remain.
            value: Returns the job's metric at a position, where higher is better; None: it has none there.
            how_many: Number of snapshots that the job retains.
            asked: Positions of snapshots that the policy requested and may still fork from; they remain.

        Returns:
            The contents that can be deleted.
        """
        by_position = self._entries.get(job, {})
        kept = {p for p, e in by_position.items() if e.pins or p in asked}
        if keep:
            kept |= retained(by_position, value, how_many)
        dropped: list[Dropped] = []
        for position in [p for p in by_position if p not in kept]:
            self.touched.touch(job)
            dropped += self.released(by_position.pop(position))
        return dropped

    def retained(self, job: str, value: Callable[[int], float | None], how_many: Keep) -> set[int]:
        """Return the positions of the snapshots that a job retains without requests of its policy.

        Args:
            job: Id of the job.
            value: Returns the job's metric at a position, where higher is better; None: it has none there.
            how_many: Number of newest and best snapshots to retain.
        """
        return retained(self._entries.get(job, {}), value, how_many)

    def drop_bytes(self, sha256: str) -> list[Dropped]:
        """Drop the snapshots of all jobs whose contents have the hash `sha256`, even if they are retained.

        Returns:
            The contents if they can be deleted. The list is empty if no job has them, or if they are still lent.
        """
        dropped: list[Dropped] = []
        for entry in [e for e in self.entries() if e.info.sha256 == sha256]:
            self.remove(entry)
            dropped += self.released(entry)
        return dropped

    def released(self, entry: SnapshotEntry) -> list[Dropped]:
        """Release the contents of a removed entry.

        Returns:
            The contents, to be deleted, unless another entry or a loan has the same contents. Then the list is empty.
        """
        self._note(entry)
        if entry.info.sha256 in self._lent:
            self._lent[entry.info.sha256] |= entry.nodes
        return [Dropped(entry.info.sha256, tuple(sorted(entry.nodes)))] if self._forget(entry.info.sha256) else []
