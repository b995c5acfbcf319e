"""Passes reports to generators that read them. `Stream.tell_generator` passes the final result of a job."""

from __future__ import annotations

from hopyard.policy.vocabulary import Report
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import GeneratorCall


def tell_report(job: Job, report: Report) -> None:
    """Record a call that passes a new report of `job` to the generator, if the generator proposed the job and reads reports."""
    if job.generated and job.experiment.settings.generator_reads == "reports":
        told = GeneratorCall("report", job.id, metrics=report.metrics, position=report.position)
        job.experiment.generator_calls.append(told)
