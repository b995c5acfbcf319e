"""What is given up when an experiment's snapshots take more bytes than its `snapshot_quota`, and what never is.

Never dropped, however many bytes they take:

* what is pinned: a run loads it, or a forked job starts from it;
* the newest snapshot and the newest STORED one of every job that has not ended;
* those at positions that the policy asked for (`snapshot_at`), while it may still fork from them;
* the result: the best job's snapshot at its best position, or its newest one if it has none there.

All else is dropped in this order until the rest fits: the best of ended jobs (those kept by `keep_best` alone, or for later
experiments), the latest of ended jobs, the best and then the latest of jobs that have not ended, and last what a COMPLETED job
would go on from if the experiment were extended. Within each of these groups the jobs with the worst results come first, and of a
job the lowest positions. Equal contents count once: they are dropped together, when the last of them may be, or not at all.
"""

from __future__ import annotations

import math

from hopyard.policy.vocabulary import JobState
from hopyard_scheduler.core.effects import ExperimentChanged, Noted
from hopyard_scheduler.core.entries import Entry
from hopyard_scheduler.core.experiment import Experiment
from hopyard_scheduler.core.model import Job

Worth = tuple[int, float, int, int]
"""Orders snapshots: group, the job's best value, position, the job's ordinal. Least valuable first."""

_BEST_OF_ENDED, _LATEST_OF_ENDED, _BEST_OF_OPEN, _LATEST_OF_OPEN, _END_OF_COMPLETED = range(5)

_TOLD_AGAIN = 1.1
"""People are told again when what is too much has grown by a tenth: not at each of the snapshots that come and go."""


def keep_within(x: Experiment) -> None:
    """Drops the least valuable snapshots until the others keep within the quota, as far as they are not needed.

    To be called when an event was taken, since only then it is known what is needed, if snapshots came or went (`tidied`).
    """
    limit = x.snapshot_quota
    if limit is None:
        _tell(x, x.snapshots.size)
        return
    changed: dict[str, None] = {}
    if x.snapshots.size > limit:
        for sha256, jobs in _droppable(x):
            x.drop(x.snapshots.drop_bytes(sha256))
            changed.update(dict.fromkeys(jobs))
            if x.snapshots.size <= limit:
                break
    for job in changed:
        x.changed(x.jobs[job])
    _tell(x, limit)


def needed(x: Experiment, job: Job, entry: Entry) -> bool:
    """Whether a snapshot may not be dropped, whatever the quota."""
    position = entry.info.position
    return bool(
        entry.pins
        or (not job.state.ended and position in x.snapshots.vital(job.id))
        or position in x.asked(job)
        or position == _result(x, job)
    )


def _droppable(x: Experiment) -> list[tuple[str, list[str]]]:
    """Contents that nobody needs, the least valuable first, each with the jobs that have it."""
    worth: dict[str, Worth] = {}
    jobs: dict[str, list[str]] = {}
    kept: set[str] = set()
    for entry in x.snapshots.entries():
        job, sha256 = x.jobs[entry.job], entry.info.sha256
        if needed(x, job, entry):
            kept.add(sha256)
        else:
            mine = _worth(x, job, entry.info.position)
            worth[sha256] = max(worth.get(sha256, mine), mine)
            jobs.setdefault(sha256, []).append(job.id)
    return [(sha256, jobs[sha256]) for sha256 in sorted(worth, key=lambda s: (worth[s], s)) if sha256 not in kept]


def _worth(x: Experiment, job: Job, position: int) -> Worth:
    latest = position in x.snapshots.latest(job.id, max(job.terms.keep_latest, 1))
    if job.state is JobState.COMPLETED and position in x.snapshots.vital(job.id):
        group = _END_OF_COMPLETED
    elif job.state.ended:
        group = _LATEST_OF_ENDED if latest else _BEST_OF_ENDED
    else:
        group = _LATEST_OF_OPEN if latest else _BEST_OF_OPEN
    best = x.sign(job.best[0]) if job.best is not None else math.nan
    return (group, best if math.isfinite(best) else -math.inf, position, job.ordinal)


def _result(x: Experiment, job: Job) -> int | None:
    """The position of the experiment's result, if this is the best job."""
    best = job.member.best
    if best is None or best[0] != job.id:
        return None
    entry = x.snapshots.get(job.id, best[1])
    if entry is not None and entry.available:
        return best[1]
    newest = x.snapshots.newest(job.id)
    return newest.info.position if newest is not None else None


def _tell(x: Experiment, limit: int) -> None:
    """Says it when even what is needed is too much."""
    crowded = max(x.snapshots.size - limit, 0)
    if crowded == x.crowded:
        return
    x.crowded = crowded
    for member in x.members.values():
        x.emit(ExperimentChanged(member.id))
    if crowded > x.crowded_told * _TOLD_AGAIN:
        x.crowded_told = crowded
        x.emit(Noted(x.id, "", warning(x), aloud=True))


def warning(x: Experiment) -> str:
    """What a person should know of the quota, in words; empty: all is well."""
    if not x.crowded:
        return ""
    return (
        f"snapshots take {x.snapshots.size} bytes, {x.crowded} more than snapshot.quota; all of them are still needed, so "
        "none is dropped"
    )
