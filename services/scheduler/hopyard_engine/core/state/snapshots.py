"""All snapshots of a stream: their locations and who needs them.

A snapshot is kept while it is pinned (a run loads it, or a forked job starts from it) or while its job retains it. A job retains

- its newest `keep_latest` snapshots;
- the snapshots that it falls back to when a node is lost: the newest STORED one, and, while its newest one is deferred and on one
  node only, the newest one that is elsewhere;
- its best `keep_best` snapshots;
- the snapshots that the policy requested.

`actions.snapshots.eviction` selects the snapshots to delete when they exceed the quota. Snapshots of earlier experiments are *lent*:
they belong to no job, but jobs may start from them (`actions.earlier_results`), so the store keeps them for this experiment too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from hopyard_engine.core.state.change_log import Recent
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
    """All snapshots of a stream.

    Args:
        lent: Hashes of lent snapshots of earlier experiments.

    Attributes:
        touched: Jobs whose snapshots changed.
    """

    def __init__(self, lent: Iterable[str] = ()) -> None:
        self._lent: dict[str, set[str]] = {sha256: set() for sha256 in lent}  # And nodes with copies that no job has.
        self.touched = Recent()
        self._entries: dict[str, dict[int, SnapshotEntry]] = {}
        self._copies: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self._size = 0
        self._unsettled: dict[SnapshotId, SnapshotEntry] = {}
        self._deferred: dict[SnapshotId, SnapshotEntry] = {}
        self._orders = 0
        self._added = 0
        self._lost_pins: dict[SnapshotId, set[str]] = {}  # Holders of lost snapshots, which may be taken again.
        self._own: dict[
            str, set[str]
        ] = {}  # Nodes that keep a copy for this stream, because its runs took it or fetched it there.

    def get(self, job: str, position: int) -> SnapshotEntry | None:
        """Returns the snapshot of a job at a position, or None."""
        return self._entries.get(job, {}).get(position)

    @property
    def settled(self) -> bool:
        """True if no upload is in progress."""
        return not self._unsettled

    def settled_of(self, belongs: Callable[[str], bool]) -> bool:
        """Returns whether no upload is in progress for the jobs for which `belongs` is true."""
        return not any(belongs(job) for job, _ in self._unsettled)

    @property
    def deferred(self) -> list[SnapshotId]:
        """The snapshots whose upload waits for an order."""
        return list(self._deferred)

    def wanted(self, belongs: Callable[[str], bool]) -> list[SnapshotId]:
        """Returns the deferred snapshots to upload for the jobs for which `belongs` is true.

        It leaves out snapshots that are kept only as a fallback until a newer one is stored.
        """
        return [
            (job, position)
            for (job, position), entry in self._deferred.items()
            if entry.nodes and belongs(job) and position not in reserve(self._entries[job], self.positions(job))
        ]

    def positions(self, job: str) -> list[int]:
        """Returns the positions of a job's available snapshots, ascending."""
        return sorted(p for p, e in self._entries.get(job, {}).items() if e.available)

    def newest(self, job: str) -> SnapshotEntry | None:
        """Returns a job's available snapshot with the highest position, or None."""
        positions = self.positions(job)
        return self._entries[job][positions[-1]] if positions else None

    @property
    def loans(self) -> int:
        """The number of lent snapshots of earlier experiments."""
        return len(self._lent)

    def holds(self, sha256: str) -> bool:
        """Returns whether any snapshot, own or lent, has these contents."""
        return sha256 in self._copies or sha256 in self._lent

    @property
    def size(self) -> int:
        """The size of all snapshots in bytes. Equal contents count once, whatever the number of copies."""
        return self._size

    def vital(self, job: str) -> set[int]:
        """Returns the positions that a job may resume from: its newest snapshot and its fallbacks."""
        by_position = self._entries.get(job, {})
        available = self.positions(job)
        newest = {available[-1]} if available else set[int]()
        stored = [p for p in available if by_position[p].stored]
        return newest | set(stored[-1:]) | reserve(by_position, available)

    def latest(self, job: str, how_many: int) -> set[int]:
        """Returns the positions of a job's newest snapshots, at most `how_many` (>= 1)."""
        return set(self.positions(job)[-how_many:])

    def entries(self) -> Iterable[SnapshotEntry]:
        """Iterates over all entries."""
        for by_position in self._entries.values():
            yield from by_position.values()

    def count(self, job: str) -> int:
        """Returns the number of a job's snapshots."""
        return len(self._entries.get(job, {}))

    def least(self, job: str) -> bool:
        """Returns whether a job has no snapshot, or only one that is available.

        Nothing of such a job can be dropped while it needs snapshots.
        """
        by_position = self._entries.get(job)
        return not by_position or (len(by_position) == 1 and next(iter(by_position.values())).available)

    def of(self, job: str) -> list[SnapshotEntry]:
        """Returns a job's entries by position, ascending."""
        return [e for _, e in sorted(self._entries.get(job, {}).items())]

    def taken(
        self, job: str, info: SnapshotInfo, node: str, attempt: int = 0, *, deferred: bool = False
    ) -> list[Dropped]:
        """Records a snapshot that a run took. Its node uploads it unless the upload is `deferred`.

        A snapshot with other contents at the same position is replaced.

        Returns:
            Contents that can be deleted.
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
        """Makes a lent snapshot, which is in the store, a job's own, unless the job has one at that position."""
        if self.get(job, info.position) is None:
            pins = self._lost_pins.pop((job, info.position), set())
            self._add(SnapshotEntry(job, info, state=SnapshotState.STORED, pins=pins))

    def copy(self, job: str, source: SnapshotEntry) -> SnapshotEntry | None:
        """Makes another job's snapshot also a job's own, unless the job has an available one at that position.

        Returns:
            The new entry if somebody must upload it: it is neither in the store nor deferred. Else None.
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

    def lend(self, hashes: Iterable[str]) -> None:
        """Adds lent snapshots of earlier experiments."""
        for sha256 in hashes:
            self._lent.setdefault(sha256, set())

    def end_loans(self, hashes: Iterable[str]) -> list[Dropped]:
        """Ends the loan of these snapshots. Jobs keep those that they have taken over.

        Returns:
            Contents that can be deleted.
        """
        ended = [(sha256, self._lent.pop(sha256)) for sha256 in dict.fromkeys(hashes) if sha256 in self._lent]
        return [Dropped(sha256, tuple(sorted(nodes))) for sha256, nodes in ended if sha256 not in self._copies]

    def _note(self, entry: SnapshotEntry) -> None:
        """Updates the sets of unsettled and deferred snapshots after a change of an entry."""
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
        """Removes a snapshot that cannot be loaded any more. The caller must pass it to `released`."""
        self.touched.touch(entry.job)
        del self._entries[entry.job][entry.info.position]
        self._deferred.pop((entry.job, entry.info.position), None)
        if entry.pins:
            self._lost_pins[entry.job, entry.info.position] = entry.pins

    def _forget(self, sha256: str) -> bool:
        """Removes one reference to these contents. Returns whether nobody needs them any more."""
        self._copies[sha256] -= 1
        if self._copies[sha256]:
            return False
        del self._copies[sha256]
        self._own.pop(sha256, None)
        self._size -= self._sizes.pop(sha256)
        return sha256 not in self._lent

    def fetched(self, job: str, position: int, node: str) -> None:
        """Records that a run loaded the snapshot on a node, so the node has a copy too."""
        entry = self.get(job, position)
        if entry is not None:
            entry.nodes.add(node)
            self._own.setdefault(entry.info.sha256, set()).add(node)

    def keeps(self, node: str, sha256: str) -> bool:
        """Returns whether a node must keep a copy for this stream until the store has it for this stream.

        A copy that belongs to another stream is usable while it exists, but not kept.
        """
        return node in self._own.get(sha256, ())

    def stored(self, job: str, position: int, sha256: str, attempt: int = 0) -> bool:
        """Records that an attempt's snapshot is in the store. Returns False if the snapshot is unknown or replaced."""
        entry = self.get(job, position)
        if entry is None or entry.info.sha256 != sha256 or attempt not in entry.attempts:
            return False
        change_snapshot(entry, SnapshotState.STORED, f"attempt {attempt} stored it")
        self._note(entry)
        return True

    def given_up(self, job: str, position: int, sha256: str, attempt: int) -> bool:
        """Records that an attempt's upload failed for good: the snapshot stays on its nodes.

        Returns False if that attempt was not uploading the snapshot.
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
        """Returns the snapshots on a node that are not in the store and that nobody uploads.

        Args:
            node: The node.
            disk: Hashes of the snapshots on its disk.
            shipping: Returns whether the node still has the channel of a job's attempt.
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
        """Returns the snapshots on a node that need an upload order and have none, because the previous uploader is gone."""
        return [
            (e.job, e.info.position)
            for e in self.entries()
            if e.by_order and not e.stored and not e.deferred and e.shipper is None and node in e.nodes
        ]

    def order(self, snapshot: SnapshotId, node: str) -> None:
        """Orders a node to upload a snapshot.

        Does nothing if the node does not have the snapshot, or if it is stored or has an uploader.
        """
        entry = self.get(*snapshot)
        if entry is not None and entry.shipper is None and not entry.stored and node in entry.nodes:
            self._orders += 1
            entry.shipper = Shipper(node, order=self._orders)
            change_snapshot(entry, SnapshotState.ORDERED, f"order {self._orders} to {node}")
            self._note(entry)

    def order_deferred(self, snapshot: SnapshotId) -> str:
        """Orders the upload of a deferred snapshot. Returns the node that gets the order."""
        entry = self._deferred[snapshot]
        node = min(entry.nodes)
        self.order(snapshot, node)
        return node

    def ordered(self, node: str) -> list[SnapshotEntry]:
        """Returns the snapshots that a node has an unanswered order to upload, by order number."""
        found = [e for e in self._unsettled.values() if e.shipper and e.shipper.order and e.shipper.node == node]
        return sorted(found, key=lambda e: e.shipper or Shipper(node))

    def of_order(self, snapshot: SnapshotId, node: str, order: int) -> SnapshotEntry | None:
        """Returns the snapshot that a node has this order to upload, or None if the order was answered or the snapshot changed."""
        entry = self.get(*snapshot)
        return entry if entry is not None and not entry.stored and entry.shipper == Shipper(node, 0, order) else None

    def shipped(self, entry: SnapshotEntry, error: str) -> None:
        """Records the answer to an upload order: stored, or failed with an error."""
        change_snapshot(
            entry, SnapshotState.LOCAL if error else SnapshotState.STORED, error or "the node has uploaded it"
        )
        if error:
            entry.shipper = None
        self._note(entry)

    def pin(self, snapshot: SnapshotId, holder: str) -> None:
        """Pins a snapshot for a holder."""
        self._entries[snapshot[0]][snapshot[1]].pins.add(holder)

    def unpin(self, snapshot: SnapshotId, holder: str) -> None:
        """Removes a holder's pin, if it exists."""
        entry = self.get(*snapshot)
        if entry is not None:
            entry.pins.discard(holder)
        elif snapshot in self._lost_pins:
            self._lost_pins[snapshot].discard(holder)
            if not self._lost_pins[snapshot]:
                del self._lost_pins[snapshot]

    def node_lost(self, node: str, kept: frozenset[str] = frozenset()) -> list[SnapshotEntry]:
        """Removes the copies of a lost node, except those in `kept` (hashes), which are known to be on its disk.

        Returns:
            The snapshots that are lost for good. The caller must pass them to `released`.
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
        """Ends the uploads of a node's channels for which `gone(job, attempt)` is true, except snapshots with the hashes `but`."""
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
        """Returns the hashes of snapshots that a node may delete to free disk space, as far as this stream knows (see `evicted`)."""
        return {e.info.sha256 for e in self.entries() if node in e.nodes and self._may_go(e, node)}

    def evicted(self, node: str, sha256s: frozenset[str]) -> tuple[list[str], list[SnapshotEntry]]:
        """Records that a node deleted copies to free disk space.

        A copy that the node keeps for this stream and that is not known to be STORED counts as present: the agent deletes only stored
        copies, and its report that the copy is stored follows on its channel.

        Returns:
            The jobs whose copies are gone, and the snapshots that are lost for good, which the caller must pass to `released`.
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
        """Updates all entries after an import: no node has a copy, and the store has those in `here` (hashes).

        Returns:
            The snapshots that are lost. The caller must pass them to `released`.
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
        """Records the snapshots that a node announced to have on its disk."""
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
        """Drops the snapshots of a job that nobody needs.

        Args:
            job: The job.
            keep: Whether the job still needs its snapshots (False once it ended without a result).
            value: Returns the job's metric at a position, higher is better; None: it has none there.
            how_many: Number of snapshots that it retains.
            asked: Positions that the policy may still fork from.

        Returns:
            Contents that can be deleted.
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
        """Returns the positions that a job retains by itself, without those that its policy requested.

        The arguments are those of `collect`.
        """
        return retained(self._entries.get(job, {}), value, how_many)

    def drop_bytes(self, sha256: str) -> list[Dropped]:
        """Drops all snapshots with these contents, whoever retains them. Returns the contents that can be deleted."""
        dropped: list[Dropped] = []
        for entry in [e for e in self.entries() if e.info.sha256 == sha256]:
            self.remove(entry)
            dropped += self.released(entry)
        return dropped

    def released(self, entry: SnapshotEntry) -> list[Dropped]:
        """Releases the contents of a removed entry. Returns them for deletion unless another entry or a loan has the same contents."""
        self._note(entry)
        if entry.info.sha256 in self._lent:
            self._lent[entry.info.sha256] |= entry.nodes
        return [Dropped(entry.info.sha256, tuple(sorted(entry.nodes)))] if self._forget(entry.info.sha256) else []
