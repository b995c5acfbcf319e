"""Reuse of the results of earlier experiments, which arrive with an experiment's first event.

When a job is answered from such results, they become its own reports, as if it had trained. When a job starts from a snapshot of
them, or is completed with it, the snapshot becomes its own. Until then the store keeps the snapshots for this experiment too (a
loan), even if the earlier experiment deletes them, but only while this experiment has not ended.
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
    """Copies reports of an earlier training into a job: those above the job's high-water mark, up to a position."""
    for report in reports:
        if job.high_water < report.position <= position:
            point = job.curve.add(report)
            value = point.metrics.get(stream.settings.metric)
            job.last, job.high_water = (job.last if value is None else value), report.position
            generator_feedback.tell_report(job, report)
            stream.emit(ReportAccepted(job.experiment.id, job.id, job.attempt, report))
            judge(stream, job, report.position, value)


def take_over(stream: Stream, job: Job, source: SnapshotId) -> SnapshotId:
    """Copies an earlier training's reports up to a position into a job, and its snapshot at that position, if there is one.

    Returns:
        The id of the job's own snapshot.
    """
    name, position = source
    trial = stream.earlier[name]
    adopt(stream, job, trial.reports, position)
    job.high_water = max(job.high_water, position)
    if position in trial.snapshots:
        stream.snapshots.take_over(job.id, trial.snapshots[position])
        stream.tidied = True
    return job.id, position


def lend_no_more(stream: Stream, hashes: Collection[str] | None = None) -> None:
    """Ends the loans of snapshots with these hashes, or of all: no further job can start from them."""
    ended = list[str]()
    for trial in stream.earlier.values():
        for position, info in list(trial.snapshots.items()):
            if hashes is None or info.sha256 in hashes:
                ended.append(trial.snapshots.pop(position).sha256)
    if ended:
        stream.drop(stream.snapshots.end_loans(ended))
