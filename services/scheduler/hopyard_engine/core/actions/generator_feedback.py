"""Reports to generators that read them. `Stream.tell_generator` reports the ends of jobs."""

from __future__ import annotations

from hopyard.policy.vocabulary import Report
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import GeneratorCall


def tell_report(job: Job, report: Report) -> None:
    """Records a new report for the generator that proposed the job, if the generator reads reports."""
    if job.generated and job.experiment.settings.generator_reads == "reports":
        told = GeneratorCall("report", job.id, metrics=report.metrics, position=report.position)
        job.experiment.generator_calls.append(told)
