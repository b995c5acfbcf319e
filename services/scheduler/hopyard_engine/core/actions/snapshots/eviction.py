"""Eviction of an experiment's snapshots when they exceed its `snapshot_quota`.

These snapshots are needed and never dropped, even if they exceed the quota:

* pinned snapshots: a run loads it, or a forked job starts from it;
* the newest snapshot and the newest STORED one of every job that has not ended;
* those at positions that the policy requested (`snapshot_at`) and may still fork from, unless the policy retrains missing ones
  (`Settings.rebuilds`);
* the result: the best job's snapshot at its best position, or its newest one if it has none there.

All others are dropped in the following order until the rest fits the quota:

1. of ended jobs, those that are kept only for their good metric (setting `keep_best`) or for later experiments;
2. of ended jobs, the newest (setting `keep_latest`);
3. of jobs that have not ended, those that are kept only by `keep_best`;
4. of jobs that have not ended, the newest;
5. those from which a COMPLETED job would resume if the experiment were extended.

Within each of these groups the jobs with the worst results come first, and within a job the lowest positions. If the policy retrains
missing snapshots, the order is different: lowest recompute cost first (`recompute_cost`), and at equal cost the oldest. In this order
too, those of group 5 come last.

To drop a snapshot is to delete its contents (its saved data, identified by a hash) from the store and from the nodes. Snapshots with
equal contents use space once. They are dropped together, when none of them is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from hopyard.policy.vocabulary import JobState
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions.snapshots.recompute_cost import seconds_again
from hopyard_engine.core.effects import ExperimentChanged, Noted
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.stream import Stream

Worth = tuple[int, float, int, int]
"""The sort key of snapshots: group, the job's best value, position, the job's ordinal. The one to drop first has the lowest key."""

_BEST_OF_ENDED, _LATEST_OF_ENDED, _BEST_OF_OPEN, _LATEST_OF_OPEN, _END_OF_COMPLETED = range(5)

_TOLD_AGAIN = 1.1
"""A notice is repeated only when the excess over the quota has grown by this factor."""


def keep_within(stream: Stream) -> None:
    """Drop snapshots that are not needed, the least valuable first, until the rest fits the stream's `snapshot_quota`.

    To drop a snapshot is to delete its data from the store and from the nodes. Without a quota nothing is dropped. To be called at the
    end of an event in which snapshots changed (`Stream.snapshots_changed`), because pins and requests may change until then.
    """
    limit = stream.snapshot_quota
    if limit is None:
        _tell(stream, stream.snapshots.size)
        return
    changed: dict[str, None] = {}
    if stream.snapshots.size > limit:
        for one in _droppable(stream):
            stream.drop(stream.snapshots.drop_bytes(one.sha256))
            changed.update(dict.fromkeys(entry.job for entry in one.entries))
            if stream.snapshots.size <= limit:
                break
    for job in changed:
        stream.changed(stream.jobs[job])
    _tell(stream, limit)


def needed(stream: Stream, job: Job, entry: SnapshotEntry) -> bool:
    """Return whether the snapshot `entry` of `job` must not be dropped, even if the snapshots exceed the quota.

    This is true if it is pinned, if a job that has not ended may resume from it, if the policy requested it, may still fork from it and
    does not retrain missing snapshots, or if it is the result of the experiment.
    """
    position = entry.info.position
    return bool(
        entry.pins
        or (not job.state.ended and position in stream.snapshots.vital(job.id))
        or (not stream.settings.rebuilds and position in stream.asked(job))
        or position == _result(stream, job)
    )


class EvictableContents(NamedTuple):
    """Snapshot contents that may be dropped, because none of the snapshots with these contents is needed.

    Contents are the saved data of a snapshot, identified by its hash. Several snapshots may have the same contents.

    Attributes:
        sha256: Hash of the contents.
        entries: The snapshots with these contents; at least one.
    """

    sha256: str
    entries: list[SnapshotEntry]

    @property
    def size(self) -> int:
        """The size of the contents in bytes."""
        return self.entries[0].info.size

    def seconds(self, stream: Stream) -> float:
        """Return the seconds of training needed to recreate the contents. It is the minimum over the snapshots with these contents."""
        return min(seconds_again(stream, entry) for entry in self.entries)


def spare(stream: Stream) -> list[EvictableContents]:
    """Return the contents of the stream's snapshots that may be dropped, in no particular order.

    Snapshots with equal contents are one element of the result. It does not depend on the quota.
    """
    found: dict[str, list[SnapshotEntry]] = {}
    kept: set[str] = set()
    for entry in stream.snapshots.entries():
        if needed(stream, stream.jobs[entry.job], entry):
            kept.add(entry.info.sha256)
        else:
            found.setdefault(entry.info.sha256, []).append(entry)
    return [EvictableContents(sha256, entries) for sha256, entries in found.items() if sha256 not in kept]


def _droppable(stream: Stream) -> Iterator[EvictableContents]:
    """Iterate over the contents that may be dropped, in the order of eviction.

    The caller must drop each before it requests the next.
    """
    if stream.settings.rebuilds:
        yield from _quickest_again(stream)
        return
    found = [(max(_worth(stream, entry) for entry in one.entries), one.sha256, one) for one in spare(stream)]
    for *_, one in sorted(found):
        yield one


def _quickest_again(stream: Stream) -> Iterator[EvictableContents]:
    """Iterate over the contents that may be dropped, lowest recompute cost first.

    The caller must drop each before it requests the next.

    A drop may raise the recompute cost of other contents, so the cost of the next contents is computed again before they are returned.
    A drop never reduces a cost, so the order of the others need not be checked.
    """
    waiting = [(_price(stream, one), one.sha256, one) for one in spare(stream)]
    heapify(waiting)
    while waiting:
        price, sha256, one = heappop(waiting)
        now = _price(stream, one)
        if now > price and waiting:
            heappush(waiting, (now, sha256, one))
        else:
            yield one


def _price(stream: Stream, one: EvictableContents) -> tuple[bool, float, int]:
    """Return the sort key of the contents `one`, lowest dropped first.

    The key consists of whether a job would resume from them if its experiment were extended (`ends`; False is dropped first), their
    recompute cost in seconds, and the sequence number of their snapshot that was recorded last (`SnapshotEntry.number`).
    """
    goes_on = any(ends(stream, stream.jobs[entry.job], entry.info.position) for entry in one.entries)
    return goes_on, one.seconds(stream), max(entry.number for entry in one.entries)


def ends(stream: Stream, job: Job, position: int) -> bool:
    """Return whether `job` is COMPLETED and might resume from its snapshot at `position` if its experiment were extended."""
    return job.state is JobState.COMPLETED and position in stream.snapshots.vital(job.id)


def _worth(stream: Stream, entry: SnapshotEntry) -> Worth:
    job, position = stream.jobs[entry.job], entry.info.position
    latest = position in stream.snapshots.latest(job.id, max(job.terms.keep_latest, 1))
    if ends(stream, job, position):
        group = _END_OF_COMPLETED
    elif job.state.ended:
        group = _LATEST_OF_ENDED if latest else _BEST_OF_ENDED
    else:
        group = _LATEST_OF_OPEN if latest else _BEST_OF_OPEN
    best = stream.sign(job.best[0]) if job.best is not None else math.nan
    return (group, best if math.isfinite(best) else -math.inf, position, job.ordinal)


def _result(stream: Stream, job: Job) -> int | None:
    """Return the position of the snapshot that is the experiment's result; None: `job` is not the best job or has no available one.

    It is the snapshot at the best position, else the job's newest available one.
    """
    best = job.experiment.best
    if best is None or best[0] != job.id:
        return None
    entry = stream.snapshots.get(job.id, best[1])
    if entry is not None and entry.available:
        return best[1]
    newest = stream.snapshots.newest(job.id)
    return newest.info.position if newest is not None else None


def _tell(stream: Stream, limit: int) -> None:
    """Update `stream.quota_excess`, the number of bytes by which the snapshots exceed the quota.

    The rows of the stream's experiments are written again if the number changed. A notice is emitted when the number exceeds
    `_TOLD_AGAIN` times the number in the last notice; the first excess is always noticed.

    Args:
        stream: The stream.
        limit: The quota in bytes.
    """
    quota_excess = max(stream.snapshots.size - limit, 0)
    if quota_excess == stream.quota_excess:
        return
    stream.quota_excess = quota_excess
    for experiment in stream.experiments.values():
        stream.emit(ExperimentChanged(experiment.id))
    if quota_excess > stream.quota_excess_noticed * _TOLD_AGAIN:
        stream.quota_excess_noticed = quota_excess
        stream.emit(Noted(stream.id, "", _exceeded(stream), aloud=True))


def warning(stream: Stream) -> Reason | None:
    """Return the warning that the needed snapshots exceed the quota; None if they do not."""
    return _exceeded(stream) if stream.quota_excess else None


def _exceeded(stream: Stream) -> Reason:
    return Reason.of(ReasonCode.QUOTA_EXCEEDED, bytes=stream.snapshots.size, excess=stream.quota_excess)
