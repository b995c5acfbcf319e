"""What is given up when an experiment's snapshots take more bytes than its `snapshot_quota`, and what never is.

Never dropped, however many bytes they take:

* what is pinned: a run loads it, or a forked job starts from it;
* the newest snapshot and the newest STORED one of every job that has not ended;
* those at positions that the policy asked for (`snapshot_at`), while it may still fork from them, unless it `rebuilds` them;
* the result: the best job's snapshot at its best position, or its newest one if it has none there.

All else is dropped in this order until the rest fits: the best of ended jobs (those kept by `keep_best` alone, or for later
experiments), the latest of ended jobs, the best and then the latest of jobs that have not ended, and last what a COMPLETED job
would go on from if the experiment were extended. Within each of these groups the jobs with the worst results come first, and of a
job the lowest positions. Of a policy that `rebuilds` what is gone, those that are the quickest to train again go first (`recompute`),
and of two that take as long the one that is known for longer; what an extension goes on from is last there, too.

Equal contents count once: they are dropped together, when the last of them may be, or not at all.
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
"""Orders snapshots: group, the job's best value, position, the job's ordinal. Least valuable first."""

_BEST_OF_ENDED, _LATEST_OF_ENDED, _BEST_OF_OPEN, _LATEST_OF_OPEN, _END_OF_COMPLETED = range(5)

_TOLD_AGAIN = 1.1
"""People are told again when what is too much has grown by a tenth: not at each of the snapshots that come and go."""


def keep_within(stream: Stream) -> None:
    """Drops the least valuable snapshots until the others keep within the quota, as far as they are not needed.

    To be called when an event was taken, since only then it is known what is needed, if snapshots came or went (`tidied`).
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
    """Whether a snapshot may not be dropped, whatever the quota."""
    position = entry.info.position
    return bool(
        entry.pins
        or (not job.state.ended and position in stream.snapshots.vital(job.id))
        or (not stream.settings.rebuilds and position in stream.asked(job))
        or position == _result(stream, job)
    )


class Spare(NamedTuple):
    """Bytes that may be given up, and whose snapshots they are."""

    sha256: str
    entries: list[SnapshotEntry]

    @property
    def size(self) -> int:
        """How many bytes."""
        return self.entries[0].info.size

    def seconds(self, stream: Stream) -> float:
        """Of training to have them back: the snapshot that is the quickest to train again has all of them."""
        return min(seconds_again(stream, entry) for entry in self.entries)


def spare(stream: Stream) -> list[Spare]:
    """All contents that nobody needs now, in no special order."""
    found: dict[str, list[SnapshotEntry]] = {}
    kept: set[str] = set()
    for entry in stream.snapshots.entries():
        if needed(stream, stream.jobs[entry.job], entry):
            kept.add(entry.info.sha256)
        else:
            found.setdefault(entry.info.sha256, []).append(entry)
    return [Spare(sha256, entries) for sha256, entries in found.items() if sha256 not in kept]


def _droppable(stream: Stream) -> Iterator[Spare]:
    """Contents that nobody needs, the least valuable first. Each is dropped before the next is asked for."""
    if stream.settings.rebuilds:
        yield from _quickest_again(stream)
        return
    found = [(max(_worth(stream, entry) for entry in one.entries), one.sha256, one) for one in spare(stream)]
    for *_, one in sorted(found):
        yield one


def _quickest_again(stream: Stream) -> Iterator[Spare]:
    """Those first that take the least training to have back, as it is after all before them were dropped.

    That takes ever longer the fewer others there are, so that only the first of the heap need be looked at again.
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


def _price(stream: Stream, one: Spare) -> tuple[bool, float, int]:
    """What an extension goes on from comes last, then by time, then by age."""
    goes_on = any(ends(stream, stream.jobs[entry.job], entry.info.position) for entry in one.entries)
    return goes_on, one.seconds(stream), max(entry.number for entry in one.entries)


def ends(stream: Stream, job: Job, position: int) -> bool:
    """Whether an extension would go on from there."""
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
    """The position of the experiment's result, if this is the best job."""
    best = job.experiment.best
    if best is None or best[0] != job.id:
        return None
    entry = stream.snapshots.get(job.id, best[1])
    if entry is not None and entry.available:
        return best[1]
    newest = stream.snapshots.newest(job.id)
    return newest.info.position if newest is not None else None


def _tell(stream: Stream, limit: int) -> None:
    """Says it when even what is needed is too much."""
    crowded = max(stream.snapshots.size - limit, 0)
    if crowded == stream.crowded:
        return
    stream.crowded = crowded
    for experiment in stream.experiments.values():
        stream.emit(ExperimentChanged(experiment.id))
    if crowded > stream.crowded_told * _TOLD_AGAIN:
        stream.crowded_told = crowded
        stream.emit(Noted(stream.id, "", _exceeded(stream), aloud=True))


def warning(stream: Stream) -> Reason | None:
    """What a person should know of the quota; None: all is well."""
    return _exceeded(stream) if stream.crowded else None


def _exceeded(stream: Stream) -> Reason:
    return Reason.of(ReasonCode.QUOTA_EXCEEDED, bytes=stream.snapshots.size, excess=stream.crowded)
