"""What generators learn: calls that are recorded in the order of the experiment, and reach its generator before the next question."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopyard.policy.vocabulary import Metrics, Report
from hopyard_engine.core.state.entities import GeneratorCall, Job

if TYPE_CHECKING:
    from hopyard_engine.core.state.stream import Stream


def tell_report(job: Job, report: Report) -> None:
    """A report is new: the generator that proposed the job learns of it, if it reads reports."""
    if job.generated and job.member.settings.generator_reads == "reports":
        told = GeneratorCall("report", job.id, metrics=report.metrics, position=report.position)
        job.member.generator_calls.append(told)


def tell_end(stream: Stream, job: Job) -> None:
    """A job ended: its generator learns how, unless it reads nothing."""
    if job.member.settings.generator_reads == "nothing":
        return
    metrics, position = _best(stream, job)
    given = None if job.generated else job.hyperparameters
    job.member.generator_calls.append(
        GeneratorCall("final", job.id, given, metrics, position=position, outcome=job.state)
    )


def _best(stream: Stream, job: Job) -> tuple[Metrics, int]:
    if job.best is None:
        return {}, 0
    position = job.best[1]
    if position in job.curve.points:
        return job.curve.points[position].metrics, position
    # It was answered from another job's results: their curves are one.
    return next(point.metrics for point in stream.curve(job) if point.position == position), position
