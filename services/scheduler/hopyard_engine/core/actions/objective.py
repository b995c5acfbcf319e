"""The best report of each job, and the best job of each experiment."""

from __future__ import annotations

import math

from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.stream import Stream


def judge(stream: Stream, job: Job, position: int, value: float | None) -> None:
    """Update the best report of a job and of its experiment after a report.

    If the best report is at this position, the best one is determined again, because the value at a position changes with each further
    part of an evaluation that several runs perform, each on one partition of the data.

    Args:
        stream: The stream of the job.
        job: The job.
        position: Position of the report.
        value: The experiment's metric at this position; None: the report does not contain it. Infinite and NaN values are never best.
    """
    if value is None:
        return
    job.experiment.measured = True
    before = job.best
    if before is not None and before[1] == position:
        job.best = _best_of(stream, job)
    elif math.isfinite(value) and (before is None or _beats(stream, value, before[0])):
        job.best = (value, position)
    if job.best == before:
        return
    experiment = job.experiment
    previous = experiment.best
    if previous is not None and previous[0] == job.id and _worse(stream, job, previous):
        # A further part of an evaluation made the best value worse.
        rated = [j for j in stream.jobs.values() if j.experiment is experiment and j.best is not None]
        experiment.best = max(
            ((j.id, j.best[1], j.best[0]) for j in rated if j.best), key=lambda b: stream.sign(b[2]), default=None
        )
    elif job.best is not None and (
        previous is None or previous[0] == job.id or _beats(stream, job.best[0], previous[2])
    ):
        experiment.best = (job.id, job.best[1], job.best[0])
    best = experiment.best
    stream.snapshots_changed = stream.snapshots_changed or best != previous
    if previous is not None and best is not None and best[0] != previous[0] and stream.jobs[previous[0]].state.ended:
        stream.collect(stream.jobs[previous[0]])


def _worse(stream: Stream, job: Job, best: tuple[str, int, float]) -> bool:
    return job.best is None or _beats(stream, best[2], job.best[0])


def _beats(stream: Stream, value: float, other: float) -> bool:
    return stream.sign(value) > stream.sign(other)


def _best_of(stream: Stream, job: Job) -> tuple[float, int] | None:
    values = [(p.metrics.get(stream.settings.metric), p.position) for p in job.curve.points.values()]
    finite = [(v, position) for v, position in values if v is not None and math.isfinite(v)]
    return max(finite, key=lambda item: (stream.sign(item[0]), -item[1])) if finite else None
