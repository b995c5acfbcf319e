"""What it would take to have a snapshot back: the seconds of training behind the nearest other one on its job's path.

A job's path leads through its own positions back to where it started from another's snapshot, and on along that job's. The seconds
are those that were measured when the path was trained. Hippo (section 3.2) keeps snapshots so that nothing is trained twice; this
says which of them are worth their bytes.
"""

from __future__ import annotations

from itertools import takewhile

from hopyard_scheduler.core.entries import Entry
from hopyard_scheduler.core.experiment import Experiment


def seconds_again(x: Experiment, entry: Entry) -> float:
    """Seconds of training, >= 0, that would have to be done again if this snapshot, and all with its bytes, were gone."""
    base = _before(x, entry)
    points = x.back(x.jobs[entry.job], entry.info.position)
    return sum(point.seconds for point in takewhile(lambda point: point.position > base, points))


def _before(x: Experiment, entry: Entry) -> int:
    """The position of the nearest other snapshot before one on its path; 0: there is none."""
    best, name, limit = 0, entry.job, entry.info.position - 1
    seen = set[str]()
    while name not in seen and name in x.jobs:
        seen.add(name)  # Two jobs may each have been answered from the other's results.
        others = (e for e in x.snapshots.of(name) if e.available and e.info.sha256 != entry.info.sha256)
        best = max([best, *(e.info.position for e in others if e.info.position <= limit)])
        origin = x.jobs[name].origin
        if origin is None:
            break
        name, limit = origin[0], min(limit, origin[1])
    return best
