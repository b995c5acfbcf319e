"""The recompute cost of a snapshot: the seconds of training from the nearest other snapshot on its path.

The path of a snapshot goes back through the positions of its job to the snapshot of another job from which the job started, and then
along the path of that snapshot. The seconds are those measured in the training. Hippo (section 3.2) keeps snapshots so that nothing is
trained twice; the cost determines which of them are worth their size.
"""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

from hopyard_engine.core.state.snapshot_entries import SnapshotEntry
from hopyard_engine.core.state.stream import Stream


class RecomputeCost(NamedTuple):
    """The cost to recreate a snapshot.

    Attributes:
        seconds: Seconds of training (>= 0) from `base`.
        base: The nearest available snapshot before it on its path; None: training starts at position 0.
    """

    seconds: float
    base: SnapshotEntry | None


def seconds_again(stream: Stream, entry: SnapshotEntry) -> float:
    """Return the seconds of training (>= 0) needed to recreate the snapshot `entry` after the deletion of its contents."""
    return again(stream, entry).seconds


def again(stream: Stream, entry: SnapshotEntry) -> RecomputeCost:
    """Return the cost to recreate the snapshot `entry` after the deletion of its saved data.

    All snapshots with the same hash lose their data then, so none of them is the base of the cost.
    """
    base = _before(stream, entry)
    start = base.info.position if base is not None else 0
    points = stream.back(stream.jobs[entry.job], entry.info.position)
    return RecomputeCost(sum(point.seconds for point in takewhile(lambda point: point.position > start, points)), base)


def _before(stream: Stream, entry: SnapshotEntry) -> SnapshotEntry | None:
    """Return the nearest available snapshot with other contents before `entry` on its path; None: there is none."""
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
