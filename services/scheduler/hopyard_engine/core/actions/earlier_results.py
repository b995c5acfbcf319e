"""Reuse of the results of earlier experiments, which are part of an experiment's first event.

When a job is answered from an earlier training, its reports become reports of the job. When a job starts from a snapshot of the
earlier training, or is completed at the position of one, the snapshot is registered as the job's own. Until then the snapshot is on
loan: the store keeps it for this experiment even if the earlier experiment deletes it. The loan ends with this experiment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from hopyard.policy.vocabulary import Report
from hopyard_engine.core.actions import generator_feedback
from hopyard_engine.core.actions.objective import judge
from hopyard_engine.core.effects import ReportAccepted
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.snapshot_entries import SnapshotId
from hopyard_engine.core.state.stream import Stream


def adopt(stream: Stream, job: Job, reports: Iterable[Report], position: int) -> None:
    """Copy the reports of an earlier training into a job: those above `job.high_water`, up to and including `position`.

    `reports` are all reports of the earlier training, by position, ascending. `job.high_water` is the highest position at which the
    job has a result.
    """
    for report in reports:
        if job.high_water < report.position <= position:
            point = job.curve.add(report)
            value = point.metrics.get(stream.settings.metric)
            job.last, job.high_water = (job.last if value is None else value), report.position
            generator_feedback.tell_report(job, report)
            stream.emit(ReportAccepted(job.experiment.id, job.id, job.attempt, report))
            judge(stream, job, report.position, value)


def take_over(stream: Stream, job: Job, source: SnapshotId) -> SnapshotId:
    """Copy an earlier training up to a position into a job: its reports and, if it has a snapshot at that position, the snapshot.

    Args:
        stream: The stream of the job.
        job: The job.
        source: (name of the earlier training as in `EarlierTrial.name`, position up to which it is copied). The stream must have
            this training.

    Returns:
        (job id, position): the id of the copied snapshot. It is returned even if there was no snapshot to copy.
    """
    name, position = source
    trial = stream.earlier[name]
    adopt(stream, job, trial.reports, position)
    job.high_water = max(job.high_water, position)
    if position in trial.snapshots:
        stream.snapshots.take_over(job.id, trial.snapshots[position])
        stream.snapshots_changed = True
    return job.id, position


def lend_no_more(stream: Stream, hashes: Collection[str] | None = None) -> None:
    """End loans of snapshots of earlier experiments, so that no further job can start from these snapshots.

    While a snapshot is on loan to a stream, its jobs may start from it, and the store keeps it for the stream.

    Args:
        stream: The stream to which the snapshots are on loan.
        hashes: Hashes of the snapshots; None: all loans.
    """
    ended = list[str]()
    for trial in stream.earlier.values():
        for position, info in list(trial.snapshots.items()):
            if hashes is None or info.sha256 in hashes:
                ended.append(trial.snapshots.pop(position).sha256)
    if ended:
        stream.drop(stream.snapshots.release_borrowed(ended))
