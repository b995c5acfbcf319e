"""Eviction when the snapshots of all experiments exceed the quota of the store.

Contents that are needed now are never deleted. These are the snapshots that an experiment's own quota never drops
(`eviction.needed`), those that a policy requested and may still fork from, and those on loan from earlier experiments: jobs may
start from them, so the store keeps them for the present experiment too. All others are deleted in the order of recompute seconds
per byte, lowest first, across all experiments. Those from which COMPLETED jobs would resume in an extension come last, in the same
order. Contents with several owners are deleted only if none of the owners needs them, and are counted once.

The snapshots to delete are chosen for all streams together. Each stream that has some of them gets an event (`SnapshotsGivenUp`). A
stream does not delete those that it needs when it handles the event.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from hopyard.policy.vocabulary import StreamId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions.snapshots import eviction
from hopyard_engine.core.actions.snapshots.recompute_cost import again, seconds_again
from hopyard_engine.core.effects import Noted
from hopyard_engine.core.events import SnapshotsGivenUp
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.stream import Stream


class EvictionRank(enum.IntEnum):
    """The rank of contents in the order of eviction, lowest first.

    SPARE: not needed. END: an extension of the experiment would resume from them. NEEDED: never deleted.
    """

    SPARE = 0
    END = 1
    NEEDED = 2


@dataclass(frozen=True, slots=True)
class StoredContents:
    """Snapshot contents that a stream has in the store or is uploading.

    Contents are the saved data of a snapshot, identified by its hash. Several snapshots may have the same contents.

    Attributes:
        sha256: Hash of the contents.
        size: Size in bytes.
        rank: Rank in the order of eviction.
        seconds: Recompute cost: seconds of training (>= 0) from the nearest snapshot before them on their path (`recompute_cost`); 0
            if needed.
        before: Hash of that nearest snapshot; empty: there is none, or the contents are needed.
    """

    sha256: str
    size: int
    rank: EvictionRank
    seconds: float = 0.0
    before: str = ""

    def and_also(self, other: StoredContents) -> StoredContents:
        """Return this record combined with `other`, a record of the same contents for another snapshot or owner.

        The result has the higher rank of the two, and the lower recompute cost of those that are not NEEDED (0 if both are).
        """
        least = min(self, other, key=lambda one: (one.rank is EvictionRank.NEEDED, one.seconds))
        return StoredContents(self.sha256, self.size, max(self.rank, other.rank), least.seconds, least.before)


def stored_contents(stream: Stream) -> list[StoredContents]:
    """Return the contents that a stream has in the store or is uploading, including those on loan from earlier experiments.

    Contents that several jobs have are repeated. Contents on loan are those of snapshots from which jobs of the stream may start.
    """
    return [*lent(stream), *(one for job in stream.jobs.values() for one in of_job(stream, job))]


def lent(stream: Stream) -> list[StoredContents]:
    """Return the contents on loan to a stream: those of snapshots of earlier experiments from which its jobs may start.

    All have the rank NEEDED.
    """
    infos = (info for trial in stream.earlier.values() for info in trial.snapshots.values())
    return [StoredContents(info.sha256, info.size, EvictionRank.NEEDED) for info in infos]


def of_job(stream: Stream, job: Job) -> list[StoredContents]:
    """Return the contents of a job's snapshots that are in the store or being uploaded."""
    entries = [entry for entry in stream.snapshots.of(job.id) if entry.stored or entry.shipper is not None]
    return [_contents_of(stream, job, entry) for entry in entries]


def give_up(stream: Stream, event: SnapshotsGivenUp) -> None:
    """Drop the snapshots that the event lists for eviction, except contents that a snapshot of the stream needs now.

    Emits a notice if any were dropped.
    """
    found: dict[str, list[SnapshotEntry]] = {sha256: [] for sha256 in event.snapshots}
    for entry in stream.snapshots.entries():
        if entry.info.sha256 in found:
            found[entry.info.sha256].append(entry)
    spare = [own for own in found.values() if own and not any(_needed(stream, entry) for entry in own)]
    if not spare:
        return
    stream.gave_up = True
    size = sum(own[0].info.size for own in spare)
    seconds = sum(min(seconds_again(stream, entry) for entry in own) for own in spare)
    for own in spare:
        stream.drop(stream.snapshots.drop_bytes(own[0].info.sha256))
        for job in dict.fromkeys(entry.job for entry in own):
            stream.changed(stream.jobs[job])
    what = Reason.of(ReasonCode.SNAPSHOTS_GIVEN_UP, snapshots=len(spare), bytes=size, seconds=seconds)
    stream.emit(Noted(stream.id, "", what, aloud=True))


def _needed(stream: Stream, entry: SnapshotEntry) -> bool:
    job = stream.jobs[entry.job]
    return eviction.needed(stream, job, entry) or entry.info.position in stream.asked(job)


def _contents_of(stream: Stream, job: Job, entry: SnapshotEntry) -> StoredContents:
    info = entry.info
    if _needed(stream, entry):
        return StoredContents(info.sha256, info.size, EvictionRank.NEEDED)
    rank = EvictionRank.END if eviction.ends(stream, job, info.position) else EvictionRank.SPARE
    seconds, base = again(stream, entry)
    return StoredContents(info.sha256, info.size, rank, seconds, base.info.sha256 if base is not None else "")


@dataclass(slots=True)
class Contents:
    """The saved data of one or more snapshots in the store, with all its owners, for the choice of what to delete.

    Attributes:
        sha256: Hash of the data, which identifies it.
        size: Size in bytes.
        rank: Rank in the order of eviction.
        seconds: Recompute cost: seconds of training (>= 0) from the nearest snapshot before them on their path; 0 if needed.
        before: Hash of that nearest snapshot; empty: there is none, or the contents are needed.
        owners: Ids of the streams that have the contents.

    `StoreContents.keep_within` updates `seconds` and `before` when it removes other contents.
    """

    sha256: str
    size: int
    rank: EvictionRank
    seconds: float
    before: str
    owners: tuple[StreamId, ...]

    @property
    def price(self) -> tuple[int, float, float, str]:
        """The sort key of eviction, lowest first: rank, recompute seconds per byte, recompute seconds, hash."""
        return self.rank, self.seconds / max(self.size, 1), self.seconds, self.sha256


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """The use of the store by the snapshots of all experiments.

    Attributes:
        quota: Maximum size in bytes; None: no limit.
        used: Bytes used by all contents.
        needed: Bytes used by contents that must not be deleted.
        spare: Number of contents that may be deleted.
        spare_seconds: Seconds of training needed to recreate all contents that may be deleted.
        next_size: Size in bytes of the contents to delete first; 0: none may be deleted.
        next_seconds: Seconds of training needed to recreate the contents to delete first; 0: none may be deleted.
    """

    quota: int | None
    used: int
    needed: int
    spare: int
    spare_seconds: float
    next_size: int
    next_seconds: float


class StoreContents:
    """The contents of the store with their owners, to choose what to delete.

    Args:
        holdings: The contents of each stream (`stored_contents`). Contents may be repeated.

    Attributes:
        used: Size of all contents in bytes.
    """

    def __init__(self, holdings: Mapping[StreamId, Iterable[StoredContents]]) -> None:
        known: dict[str, StoredContents] = {}
        owners: dict[str, dict[StreamId, None]] = {}
        for owner, held in holdings.items():
            for one in held:
                known[one.sha256] = one.and_also(known[one.sha256]) if one.sha256 in known else one
                owners.setdefault(one.sha256, {})[owner] = None
        self._all = {
            one.sha256: Contents(one.sha256, one.size, one.rank, one.seconds, one.before, tuple(owners[one.sha256]))
            for one in known.values()
        }
        self.used = sum(one.size for one in self._all.values())

    def use(self, quota: int | None) -> StoreUsage:
        """Return the use of the store under a `quota` in bytes; None: no limit."""
        spare = self._spare()
        first = min(spare, key=lambda one: one.price, default=None)
        return StoreUsage(
            quota=quota,
            used=self.used,
            needed=self.used - sum(one.size for one in spare),
            spare=len(spare),
            spare_seconds=sum(one.seconds for one in spare),
            next_size=first.size if first is not None else 0,
            next_seconds=first.seconds if first is not None else 0.0,
        )

    def keep_within(self, limit: int) -> list[Contents]:
        """Remove contents in the order of eviction until the rest has at most `limit` bytes or is needed.

        Returns:
            The removed contents, in order, each with its recompute cost at the time of its removal. A removal raises the cost of
            contents whose cost was measured from it.
        """
        behind: dict[str, list[Contents]] = {}
        for one in self._all.values():
            behind.setdefault(one.before, []).append(one)
        waiting = [(one.price, one) for one in self._spare()]
        gone: list[Contents] = []
        heapify(waiting)
        while waiting and self.used > limit:
            price, one = heappop(waiting)
            if one.price > price:
                heappush(waiting, (one.price, one))
                continue
            gone.append(one)
            self.used -= one.size
            del self._all[one.sha256]
            for later in behind.pop(one.sha256, []):
                if later.sha256 in self._all:
                    later.seconds, later.before = later.seconds + one.seconds, one.before
                    behind.setdefault(one.before, []).append(later)
        return gone

    def _spare(self) -> list[Contents]:
        """Return the contents that may be deleted, except those of size 0, which free no space."""
        return [one for one in self._all.values() if one.rank is not EvictionRank.NEEDED and one.size]
