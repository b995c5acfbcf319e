"""What is given up when the snapshots of all experiments together take more bytes than the store may hold.

What somebody needs now never is: what the quota of an experiment never takes (`eviction`), and beside that all that the policy of one
that is not over may still start from, and what earlier experiments lend it. All else goes in this order: first what is the quickest
to train again for its bytes, of whichever experiment; at last, in the same order, what COMPLETED jobs would go on from if their
experiments were extended. Contents that several have go only if none of them needs them, and count once.

The cluster part decides, as it does for slots. Each experiment that loses something has an event of that in its own stream, and
looks itself whether it needs what it is to give up.
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
    """Who goes first."""

    SPARE = 0
    END = 1
    NEEDED = 2


@dataclass(frozen=True, slots=True)
class StoredContents:
    """Contents that an experiment has in the store, or on their way there.

    Attributes:
        sha256: Their hash.
        size: Their bytes.
        rank: What the experiment would lose with them.
        seconds: Of training, >= 0, from the nearest snapshot before one with these contents on its path; 0 for what is needed.
        before: That one's hash; empty: there is none.
    """

    sha256: str
    size: int
    rank: EvictionRank
    seconds: float = 0.0
    before: str = ""

    def and_also(self, other: StoredContents) -> StoredContents:
        """The same contents where somebody else has them: who can spare them says what they cost, the quickest to train again first."""
        least = min(self, other, key=lambda one: (one.rank is EvictionRank.NEEDED, one.seconds))
        return StoredContents(self.sha256, self.size, max(self.rank, other.rank), least.seconds, least.before)


def stored_contents(stream: Stream) -> list[StoredContents]:
    """What a stream's experiments have in the store, as it is now; what several jobs have, for each of them."""
    return [*lent(stream), *(one for job in stream.jobs.values() for one in of_job(stream, job))]


def lent(stream: Stream) -> list[StoredContents]:
    """What earlier experiments lend them."""
    infos = (info for trial in stream.earlier.values() for info in trial.snapshots.values())
    return [StoredContents(info.sha256, info.size, EvictionRank.NEEDED) for info in infos]


def of_job(stream: Stream, job: Job) -> list[StoredContents]:
    """What a job has there."""
    entries = [entry for entry in stream.snapshots.of(job.id) if entry.stored or entry.shipper is not None]
    return [_contents_of(stream, job, entry) for entry in entries]


def give_up(stream: Stream, event: SnapshotsGivenUp) -> None:
    """Drops what the cluster part has chosen, but for what is needed by now."""
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
    """The same bytes, whoever has them: `owners` are streams. The rest is as of `Held`."""

    sha256: str
    size: int
    rank: EvictionRank
    seconds: float
    before: str
    owners: tuple[str, ...]

    @property
    def price(self) -> tuple[int, float, float, str]:
        """Orders what may be given up."""
        return self.rank, self.seconds / max(self.size, 1), self.seconds, self.sha256


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """What the snapshots of all experiments take in the store.

    Attributes:
        quota: Bytes that they may take; None: any.
        used: Bytes that they take.
        needed: Those of them that somebody needs now.
        spare: How many others there are.
        spare_seconds: Of training to have all of these back.
        next_size: Bytes of the one that would go first; 0: there is none.
        next_seconds: Of training to have that one back.
    """

    quota: int | None
    used: int
    needed: int
    spare: int
    spare_seconds: float
    next_size: int
    next_seconds: float


class Room:
    """The store as it is, and as it becomes.

    Args:
        holdings: What each stream has in it; contents may come more than once.

    Attributes:
        used: Bytes of all contents.
    """

    def __init__(self, holdings: Mapping[StreamId, Iterable[StoredContents]]) -> None:
        known: dict[str, StoredContents] = {}
        owners: dict[str, dict[str, None]] = {}
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
        """How full it is, of so many bytes; None: there is no limit."""
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
        """Gives up the cheapest until the rest takes at most `limit` bytes, as far as it is not needed.

        Returns:
            What went, in order, each at its price by then: it makes dearer what lies behind it.
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
        """What may be given up. What has no bytes makes no room."""
        return [one for one in self._all.values() if one.rank is not EvictionRank.NEEDED and one.size]
