"""Passes reports to generators that read them. `Stream.tell_generator` passes the final result of a job."""

from __future__ import annotations

from hopyard.policy.vocabulary import Report
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import GeneratorCall


def tell_report(job: Job, report: Report) -> None:
    """Add a new report of `job` to the calls that the generator gets before its next proposal.

    Does nothing if the generator did not propose the job or does not read reports.
    """
    if job.generated and job.experiment.settings.generator_reads == "reports":
        told = GeneratorCall("report", job.id, metrics=report.metrics, position=report.position)
        job.experiment.generator_calls.append(told)
