"""Which snapshots exist, where they are, and who still needs them.

A snapshot is kept while it is pinned (a run loads it, or a forked job starts from it) or while its job retains it. A job retains

- its newest `keep_latest` snapshots;
- those that it goes back to when a node dies: the newest STORED one, and, while its newest one is deferred and on one node only, the
  newest one that is elsewhere;
- its best `keep_best` snapshots;
- those that the policy asked for.

`actions.eviction` selects which of these to delete when they take too many bytes. Snapshots of earlier experiments are *lent*: no job
has them, but jobs may start from them (`actions.earlier_results`), so the store keeps them for this experiment too.
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
    """All snapshots of an experiment.

    Args:
        lent: Hashes of earlier experiments' ones.

    Attributes:
        touched: Jobs whose snapshots came or went.
    """

    def __init__(self, lent: Iterable[str] = ()) -> None:
        self._lent: dict[str, set[str]] = {sha256: set() for sha256 in lent}  # And nodes that have copies for no job.
        self.touched = Recent()
        self._entries: dict[str, dict[int, SnapshotEntry]] = {}
        self._copies: Counter[str] = Counter()
        self._sizes: dict[str, int] = {}
        self._size = 0
        self._unsettled: dict[SnapshotId, SnapshotEntry] = {}
        self._deferred: dict[SnapshotId, SnapshotEntry] = {}
        self._orders = 0
        self._added = 0
        self._lost_pins: dict[SnapshotId, set[str]] = {}  # Who still needs what is lost: it may be taken again.
        self._own: dict[
            str, set[str]
        ] = {}  # Nodes that keep a copy for this experiment: its runs took or got it there.

    def get(self, job: str, position: int) -> SnapshotEntry | None:
        """The snapshot of a job at a position."""
        return self._entries.get(job, {}).get(position)

    @property
    def settled(self) -> bool:
        """Whether every snapshot is in the store, or will never get there."""
        return not self._unsettled

    def settled_of(self, belongs: Callable[[str], bool]) -> bool:
        """The same, of the jobs that belong."""
        return not any(belongs(job) for job, _ in self._unsettled)

    @property
    def deferred(self) -> list[SnapshotId]:
        """Snapshots whose upload waits for an order."""
        return list(self._deferred)

    def wanted(self, belongs: Callable[[str], bool]) -> list[SnapshotId]:
        """Deferred snapshots of the jobs that belong, without those that are kept only until something newer is stored."""
        return [
            (job, position)
            for (job, position), entry in self._deferred.items()
            if entry.nodes and belongs(job) and position not in reserve(self._entries[job], self.positions(job))
        ]

    def positions(self, job: str) -> list[int]:
        """Positions of a job's available snapshots, ascending."""
        return sorted(p for p, e in self._entries.get(job, {}).items() if e.available)

    def newest(self, job: str) -> SnapshotEntry | None:
        """A job's available snapshot with the highest position."""
        positions = self.positions(job)
        return self._entries[job][positions[-1]] if positions else None

    @property
    def loans(self) -> int:
        """How many snapshots of earlier experiments are lent; they only become fewer."""
        return len(self._lent)

    def holds(self, sha256: str) -> bool:
        """Whether any snapshot has these bytes."""
        return sha256 in self._copies or sha256 in self._lent

    @property
    def size(self) -> int:
        """Bytes of all snapshots: equal contents count once, wherever and however often they lie."""
        return self._size

    def vital(self, job: str) -> set[int]:
        """Positions that a job goes on from: its newest snapshot, and those to which it would fall back."""
        by_position = self._entries.get(job, {})
        available = self.positions(job)
        newest = {available[-1]} if available else set[int]()
        stored = [p for p in available if by_position[p].stored]
        return newest | set(stored[-1:]) | reserve(by_position, available)

    def latest(self, job: str, how_many: int) -> set[int]:
        """Positions of a job's newest snapshots, `how_many` (>= 1) at most."""
        return set(self.positions(job)[-how_many:])

    def entries(self) -> Iterable[SnapshotEntry]:
        """All entries."""
        for by_position in self._entries.values():
            yield from by_position.values()

    def count(self, job: str) -> int:
        """How many snapshots a job has."""
        return len(self._entries.get(job, {}))

    def least(self, job: str) -> bool:
        """Whether a job has no more than the one snapshot that it goes on from: as long as it wants any, none is dropped."""
        by_position = self._entries.get(job)
        return not by_position or (len(by_position) == 1 and next(iter(by_position.values())).available)

    def of(self, job: str) -> list[SnapshotEntry]:
        """A job's entries by position."""
        return [e for _, e in sorted(self._entries.get(job, {}).items())]

    def taken(
        self, job: str, info: SnapshotInfo, node: str, attempt: int = 0, *, deferred: bool = False
    ) -> list[Dropped]:
        """A run has taken a snapshot, which its node uploads unless the upload is deferred.

        One with other bytes at the same position is replaced.
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
        """A job has a lent snapshot, which is in the store, as its own, unless it has one there."""
        if self.get(job, info.position) is None:
            pins = self._lost_pins.pop((job, info.position), set())
            self._add(SnapshotEntry(job, info, state=SnapshotState.STORED, pins=pins))

    def copy(self, job: str, source: SnapshotEntry) -> SnapshotEntry | None:
        """A job has another's snapshot as its own, too, unless it has one there that can be loaded.

        Answers its own if it is new and neither in the store nor deferred: somebody must upload it.
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
        """Further snapshots of earlier experiments are lent."""
        for sha256 in hashes:
            self._lent.setdefault(sha256, set())

    def end_loans(self, hashes: Iterable[str]) -> list[Dropped]:
        """These are lent no more. What jobs have taken over of them stays theirs."""
        ended = [(sha256, self._lent.pop(sha256)) for sha256 in dict.fromkeys(hashes) if sha256 in self._lent]
        return [Dropped(sha256, tuple(sorted(nodes))) for sha256, nodes in ended if sha256 not in self._copies]

    def _note(self, entry: SnapshotEntry) -> None:
        """Keeps account of what is on its way to the store."""
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
        """Nobody can load it any more; it is to be given to `released`."""
        self.touched.touch(entry.job)
        del self._entries[entry.job][entry.info.position]
        self._deferred.pop((entry.job, entry.info.position), None)
        if entry.pins:
            self._lost_pins[entry.job, entry.info.position] = entry.pins

    def _forget(self, sha256: str) -> bool:
        """One entry less has these bytes. Returns whether nobody needs them any more."""
        self._copies[sha256] -= 1
        if self._copies[sha256]:
            return False
        del self._copies[sha256]
        self._own.pop(sha256, None)
        self._size -= self._sizes.pop(sha256)
        return sha256 not in self._lent

    def fetched(self, job: str, position: int, node: str) -> None:
        """A run loaded the snapshot, so its node holds it too."""
        entry = self.get(job, position)
        if entry is not None:
            entry.nodes.add(node)
            self._own.setdefault(entry.info.sha256, set()).add(node)

    def keeps(self, node: str, sha256: str) -> bool:
        """Whether a node keeps a copy for this experiment until the store has it for this experiment.

        Another experiment's copy, of which the node told at its hello, is as good while it is there.
        """
        return node in self._own.get(sha256, ())

    def stored(self, job: str, position: int, sha256: str, attempt: int = 0) -> bool:
        """The store has what an attempt brought there. False if that is not known (any more)."""
        entry = self.get(job, position)
        if entry is None or entry.info.sha256 != sha256 or attempt not in entry.attempts:
            return False
        change_snapshot(entry, SnapshotState.STORED, f"attempt {attempt} stored it")
        self._note(entry)
        return True

    def given_up(self, job: str, position: int, sha256: str, attempt: int) -> bool:
        """An attempt's node cannot bring a snapshot to the store: it stays where it is. False if it was not to."""
        entry = self.get(job, position)
        if entry is None or entry.info.sha256 != sha256 or entry.shipper is None or entry.shipper.attempt != attempt:
            return False
        entry.shipper = None
        if not entry.stored:
            change_snapshot(entry, SnapshotState.LOCAL, f"attempt {attempt} gave it up")
        self._note(entry)
        return True

    def unshipped(self, node: str, disk: frozenset[str], shipping: Callable[[str, int], bool]) -> list[SnapshotId]:
        """What a node has that is not in the store and on nobody's way there.

        Args:
            node: The node.
            disk: Hashes of what it has.
            shipping: Whether it still has the channel of a job's attempt.
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
        """What a node has that only an order brings to the store, and nobody has one: whoever had is gone."""
        return [
            (e.job, e.info.position)
            for e in self.entries()
            if e.by_order and not e.stored and not e.deferred and e.shipper is None and node in e.nodes
        ]

    def order(self, snapshot: SnapshotId, node: str) -> None:
        """A node that has a snapshot is told to bring it to the store; what is gone, stored or shipped by another meanwhile is not."""
        entry = self.get(*snapshot)
        if entry is not None and entry.shipper is None and not entry.stored and node in entry.nodes:
            self._orders += 1
            entry.shipper = Shipper(node, order=self._orders)
            change_snapshot(entry, SnapshotState.ORDERED, f"order {self._orders} to {node}")
            self._note(entry)

    def order_deferred(self, snapshot: SnapshotId) -> str:
        """Orders the upload of a deferred snapshot. Returns the node that has the order."""
        entry = self._deferred[snapshot]
        node = min(entry.nodes)
        self.order(snapshot, node)
        return node

    def ordered(self, node: str) -> list[SnapshotEntry]:
        """What a node was told to bring to the store and has not answered yet, in the order of the orders."""
        found = [e for e in self._unsettled.values() if e.shipper and e.shipper.order and e.shipper.node == node]
        return sorted(found, key=lambda e: e.shipper or Shipper(node))

    def of_order(self, snapshot: SnapshotId, node: str, order: int) -> SnapshotEntry | None:
        """What a node was told to bring to the store by this order; None: it is answered, or the snapshot is not that one any more."""
        entry = self.get(*snapshot)
        return entry if entry is not None and not entry.stored and entry.shipper == Shipper(node, 0, order) else None

    def shipped(self, entry: SnapshotEntry, error: str) -> None:
        """An order is carried out, or was given up with an error."""
        change_snapshot(
            entry, SnapshotState.LOCAL if error else SnapshotState.STORED, error or "the node has uploaded it"
        )
        if error:
            entry.shipper = None
        self._note(entry)

    def pin(self, snapshot: SnapshotId, holder: str) -> None:
        """Keeps a snapshot for a holder."""
        self._entries[snapshot[0]][snapshot[1]].pins.add(holder)

    def unpin(self, snapshot: SnapshotId, holder: str) -> None:
        """Lets a holder's snapshot go; unknown ones are fine."""
        entry = self.get(*snapshot)
        if entry is not None:
            entry.pins.discard(holder)
        elif snapshot in self._lost_pins:
            self._lost_pins[snapshot].discard(holder)
            if not self._lost_pins[snapshot]:
                del self._lost_pins[snapshot]

    def node_lost(self, node: str, kept: frozenset[str] = frozenset()) -> list[SnapshotEntry]:
        """A node is gone, except for what its disk is known to hold.

        Returns:
            The snapshots that are lost for good, to be given to `released`.
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
        """The channels of a node that are gone (by job and attempt) bring nothing to the store any more, `but` these hashes."""
        for entry in self.entries():
            if entry.info.sha256 in but:
                continue
            if entry.shipper is not None and entry.shipper.node == node and gone(entry.job, entry.shipper.attempt):
                entry.shipper = None
                if not entry.stored:  # Another node may be asked.
                    elsewhere = entry.by_order and bool(entry.nodes - {node})
                    change_snapshot(
                        entry,
                        SnapshotState.DEFERRED if elsewhere else SnapshotState.LOCAL,
                        f"{node} does not upload it any more",
                    )
                self._note(entry)

    def may_evict(self, node: str) -> set[str]:
        """Hashes of snapshots that a node may delete to make room, as far as this experiment knows: see `evicted`."""
        return {e.info.sha256 for e in self.entries() if node in e.nodes and self._may_go(e, node)}

    def evicted(self, node: str, sha256s: frozenset[str]) -> tuple[list[str], list[SnapshotEntry]]:
        """A node has made room.

        A copy that it keeps for this experiment and that is not known to be STORED counts as there: its agent knows better, and says
        so on its channel.

        Returns:
            The jobs whose snapshots it holds no more; and those of the snapshots that are lost for good, to be given to `released`.
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
        """The experiment is in another cluster: no node has anything, the store has what is `here` (by hash).

        Returns:
            The snapshots that are lost, to be given to `released`.
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
        """A node said what its disk holds."""
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
        """Drops what nobody needs of a job.

        Args:
            job: The job.
            keep: Whether the job itself still wants its snapshots (False once it ended without a result).
            value: The job's metric at a position, higher is better; None if it has none there.
            how_many: It retains so many.
            asked: Positions that the policy may still fork from.
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
        """Positions of the snapshots that a job retains by itself, whatever its policy asked for; arguments as for `collect`."""
        return retained(self._entries.get(job, {}), value, how_many)

    def drop_bytes(self, sha256: str) -> list[Dropped]:
        """Drops all snapshots with these bytes, whoever retains them."""
        dropped: list[Dropped] = []
        for entry in [e for e in self.entries() if e.info.sha256 == sha256]:
            self.remove(entry)
            dropped += self.released(entry)
        return dropped

    def released(self, entry: SnapshotEntry) -> list[Dropped]:
        """An entry is no more: its bytes can be deleted, unless another one has the same."""
        self._note(entry)
        if entry.info.sha256 in self._lent:
            self._lent[entry.info.sha256] |= entry.nodes
        return [Dropped(entry.info.sha256, tuple(sorted(entry.nodes)))] if self._forget(entry.info.sha256) else []
