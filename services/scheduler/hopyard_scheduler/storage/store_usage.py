"""The store usage of finished experiments, computed from their rows in AppStat."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from hopyard.v1 import common_pb2, experiment_pb2
from hopyard_engine.core.actions.snapshots.store_quota import EvictionRank, StoredContents

_COMPLETED = common_pb2.JOB_STATE_COMPLETED
_ENDED = (_COMPLETED, common_pb2.JOB_STATE_TERMINATED, common_pb2.JOB_STATE_FAILED)


def of_rows(
    experiments: Iterable[experiment_pb2.Experiment], jobs: Collection[experiment_pb2.Job]
) -> list[StoredContents]:
    """Return records of the snapshots that a finished stream has in the store, with their rank for eviction.

    To keep the quota, snapshots with the rank SPARE are deleted first, then those with the rank END.

    The snapshot with the result of an experiment has the rank NEEDED: it is never deleted for this purpose. So have the
    snapshots of unfinished jobs: if the time limit ended their experiment, an extension of the experiment continues
    them. The last snapshot of a completed job has the rank END, all others the rank SPARE.

    Args:
        experiments: The rows of the stream's experiments.
        jobs: The rows of all jobs of these experiments.
    """
    best = {one.best_job: one.best_position for one in experiments if one.best_job}
    by_id = {job.id: job for job in jobs}
    found: list[StoredContents] = []
    for job in jobs:
        result = _result(job, best)
        end = max((one.position for one in job.snapshots), default=0)
        for one in job.snapshots:
            if not one.stored:
                continue
            if job.state not in _ENDED or one.position == result:
                found.append(StoredContents(one.sha256, one.size_bytes, EvictionRank.NEEDED))
            else:
                rank = EvictionRank.END if job.state == _COMPLETED and one.position == end else EvictionRank.SPARE
                found.append(
                    StoredContents(one.sha256, one.size_bytes, rank, one.seconds_again, _before(by_id, job, one))
                )
    return found


def _result(job: experiment_pb2.Job, best: Mapping[str, int]) -> int | None:
    """Return the position of the job's snapshot that has the result of its experiment; None: the job has no such snapshot.

    Args:
        job: The job.
        best: By id of the best job of each experiment: the position of the best report.
    """
    positions = [one.position for one in job.snapshots]
    if job.id not in best or not positions:
        return None
    return best[job.id] if best[job.id] in positions else max(positions)


def _before(jobs: Mapping[str, experiment_pb2.Job], job: experiment_pb2.Job, one: common_pb2.Snapshot) -> str:
    """Return the hash of the snapshot with the highest position below a given one on the job's path; empty: there is none.

    The path includes the jobs from which the job was forked, up to the position of each fork.

    Args:
        jobs: All jobs of the stream by id.
        job: The job that has the snapshot.
        one: The snapshot.
    """
    best, sha256 = 0, ""
    limit, seen = one.position - 1, set[str]()
    while job.id not in seen:
        seen.add(job.id)
        for other in job.snapshots:
            if best < other.position <= limit and other.sha256 != one.sha256:
                best, sha256 = other.position, other.sha256
        if job.parent not in jobs:
            break
        limit, job = min(limit, job.fork_position), jobs[job.parent]
    return sha256
