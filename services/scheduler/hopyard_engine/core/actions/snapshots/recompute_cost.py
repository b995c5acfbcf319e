"""What it would take to have a snapshot back: the seconds of training behind the nearest other one on its job's path.

A job's path leads through its own positions back to where it started from another's snapshot, and on along that job's. The seconds
are those that were measured when the path was trained. Hippo (section 3.2) keeps snapshots so that nothing is trained twice; this
says which of them are worth their bytes.
"""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.stream import Stream


class RecomputeCost(NamedTuple):
    """What it takes to have a snapshot back: `seconds` (>= 0) of training from `base`, the nearest other one before it on its path."""

    seconds: float
    base: SnapshotEntry | None


def seconds_again(stream: Stream, entry: SnapshotEntry) -> float:
    """Seconds of training, >= 0, that would have to be done again if this snapshot, and all with its bytes, were gone."""
    return again(stream, entry).seconds


def again(stream: Stream, entry: SnapshotEntry) -> RecomputeCost:
    """What it would take to have a snapshot back if it, and all with its bytes, were gone."""
    base = _before(stream, entry)
    start = base.info.position if base is not None else 0
    points = stream.back(stream.jobs[entry.job], entry.info.position)
    return RecomputeCost(sum(point.seconds for point in takewhile(lambda point: point.position > start, points)), base)


def _before(stream: Stream, entry: SnapshotEntry) -> SnapshotEntry | None:
    """The nearest other snapshot before one on its path; None: there is none."""
    best: SnapshotEntry | None = None
    name, limit = entry.job, entry.info.position - 1
    seen = set[str]()
    while name not in seen and name in stream.jobs:
        seen.add(name)  # Two jobs may each have been answered from the other's results.
        others = (e for e in stream.snapshots.of(name) if e.available and e.info.sha256 != entry.info.sha256)
        best = max(
            [*([best] if best is not None else []), *(e for e in others if e.info.position <= limit)],
            key=lambda e: e.info.position,
            default=None,
        )
        origin = stream.jobs[name].origin
        if origin is None:
            break
        name, limit = origin[0], min(limit, origin[1])
    return best
