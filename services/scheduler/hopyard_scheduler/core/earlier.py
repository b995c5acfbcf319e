"""What earlier experiments have trained that an experiment shares with them: it came with its first event.

The results are the experiment's own from the moment a job is answered from them: they become its reports, as if it had trained.
"""

from __future__ import annotations

from hopyard_scheduler.core import learning
from hopyard_scheduler.core.effects import ReportAccepted
from hopyard_scheduler.core.experiment import Experiment
from hopyard_scheduler.core.judging import judge
from hopyard_scheduler.core.model import Earlier, Job


def adopt(x: Experiment, job: Job, source: Earlier, position: int) -> None:
    """A job has an earlier training's results up to a position; those that it has itself stay as they are."""
    for report in source.reports:
        if job.high_water < report.position <= position:
            point = job.curve.add(report)
            value = point.metrics.get(x.settings.metric)
            job.last, job.high_water = (job.last if value is None else value), report.position
            learning.tell_report(job, report)
            x.emit(ReportAccepted(job.member.id, job.id, job.attempt, report))
            judge(x, job, report.position, value)
