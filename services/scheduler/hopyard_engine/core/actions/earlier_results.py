"""What earlier experiments have trained that an experiment shares with them: it came with its first event.

The results are the experiment's own from the moment a job is answered from them: they become its reports, as if it had trained.
So is a snapshot from the moment a job starts from it, or is complete with it. Until then the store keeps the snapshots for the
experiment beside their own one, which may end or give them up meanwhile; no longer than until it is over.
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
    """A job has an earlier training's results up to a position; those that it has itself stay as they are."""
    for report in reports:
        if job.high_water < report.position <= position:
            point = job.curve.add(report)
            value = point.metrics.get(stream.settings.metric)
            job.last, job.high_water = (job.last if value is None else value), report.position
            generator_feedback.tell_report(job, report)
            stream.emit(ReportAccepted(job.experiment.id, job.id, job.attempt, report))
            judge(stream, job, report.position, value)


def take_over(stream: Stream, job: Job, source: SnapshotId) -> SnapshotId:
    """A job has an earlier training's results up to a position, and its snapshot there, if there is one.

    Answers which of its own that is then.
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
    """No further job starts from these snapshots of earlier experiments, or from any."""
    ended = list[str]()
    for trial in stream.earlier.values():
        for position, info in list(trial.snapshots.items()):
            if hashes is None or info.sha256 in hashes:
                ended.append(trial.snapshots.pop(position).sha256)
    if ended:
        stream.drop(stream.snapshots.end_loans(ended))
