"""Projections: rows of AppStat for the jobs, experiments, reports and profiles that a batch of events changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hopyard._net.rpc.reasons import set_reason
from hopyard._net.rpc.values import fill_report
from hopyard.policy.vocabulary import ExperimentId
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.v1 import appstat_pb2, common_pb2, experiment_pb2
from hopyard_engine.core import Core
from hopyard_engine.core.effects import ExperimentChanged, JobChanged, Profiled, ReportAccepted
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.stream import Stream
from hopyard_scheduler.converters import experiment_to_proto, job_to_proto
from hopyard_scheduler.search_plan.projection import PlanRows


class Changes:
    """Collects what a batch changed, each job and experiment once, and makes the rows of AppStat from it.

    Attributes:
        jobs: Changed jobs, as pairs of experiment id and job id. The dict serves as an ordered set.
        experiments: Ids of the changed experiments. The dict serves as an ordered set.
        reports: The accepted reports.
        profiles: The measured scaling profiles.
    """

    def __init__(self) -> None:
        self.jobs: dict[tuple[str, str], None] = {}
        self.experiments: dict[str, None] = {}
        self.reports: list[ReportAccepted] = []
        self.profiles: list[Profiled] = []

    def note(self, effect: JobChanged | ExperimentChanged | ReportAccepted | Profiled) -> None:
        """Add the change that an effect describes."""
        match effect:
            case JobChanged():
                self.jobs[effect.experiment, effect.job] = None
                self.experiments[effect.experiment] = None
            case ExperimentChanged():
                self.experiments[effect.experiment] = None
            case ReportAccepted():
                self.reports.append(effect)
            case Profiled():
                self.profiles.append(effect)

    def rows(self, core: Core, at: float, plans: PlanRows) -> list[appstat_pb2.Projection]:
        """Return the AppStat rows of everything that changed, with the present state of the core.

        The row of a job that no longer exists is deleted.

        Args:
            core: The core (the state machine of the engine), which must contain all changed experiments.
            at: The present time, in seconds since the Unix epoch.
            plans: Makes the rows of the search plan.
        """
        rows = []
        for name in self.experiments:
            stream, experiment = _found(core, name)
            message = experiment_to_proto(stream, experiment, at, experiment.reason)
            rows.append(appstat_pb2.Projection(experiment=message))
        for name, job in self.jobs:
            stream, _ = _found(core, name)
            if job not in stream.jobs:
                rows.append(appstat_pb2.Projection(deleted_job=appstat_pb2.DeletedJob(experiment=name, id=job)))
                continue
            rows.append(_job(stream, stream.jobs[job]))
            if (planned := plans.row(stream, stream.jobs[job])) is not None:
                rows.append(planned)
        rows += statistics(self.reports, at)
        rows += [_scaling(profiled, at) for profiled in self.profiles]
        return rows


def _job(stream: Stream, job: Job) -> appstat_pb2.Projection:
    """Return the AppStat row of a job. It contains the reason for the job's state unless the job has a run."""
    return appstat_pb2.Projection(job=job_to_proto(stream, job, None if job.state.live else job.reason))


def _found(core: Core, name: str) -> tuple[Stream, Experiment]:
    found = core.find(ExperimentId(name))
    assert found is not None, f"a change of {name}, which the core does not have"
    return found


def statistics(reports: Iterable[ReportAccepted], at: float) -> Iterator[appstat_pb2.Projection]:
    """Return rows that contain the given reports, one row for each attempt of a job.

    Args:
        reports: Accepted reports of any jobs.
        at: Time of acceptance, in seconds since the Unix epoch.
    """
    found: dict[tuple[str, str, int], appstat_pb2.Statistics] = {}
    for accepted in reports:
        key = accepted.experiment, accepted.job, accepted.attempt
        same = found.get(key)
        if same is None:
            experiment, job, attempt = key
            same = found[key] = appstat_pb2.Statistics(experiment=experiment, job=job, attempt=attempt)
        fill_report(same.reports.add(), accepted.report, at=at)
    return (appstat_pb2.Projection(statistics=same) for same in found.values())


def _scaling(profiled: Profiled, at: float) -> appstat_pb2.Projection:
    measured = profiled.measured
    row = appstat_pb2.Scaling(
        training=profiled.training,
        hardware=measured.hardware,
        slots=measured.slots,
        seconds=measured.seconds,
        experiment=profiled.experiment,
        job=profiled.job,
        at=at,
    )
    return appstat_pb2.Projection(scaling=row)


def unreadable_row(experiment: experiment_pb2.Experiment, error: str) -> appstat_pb2.Projection:
    """Return the row of an experiment whose journal cannot be read because of `error`: PAUSED, with this reason."""
    row = appstat_pb2.Projection(experiment=experiment)
    row.experiment.state = experiment_pb2.EXPERIMENT_STATE_PAUSED
    set_reason(row.experiment, Reason.of(ReasonCode.JOURNAL_UNREADABLE, error=error))
    return row


def was_unreadable(experiment: experiment_pb2.Experiment) -> bool:
    """Return True if an experiment is the message of an `unreadable_row`."""
    return experiment.reason_code == common_pb2.REASON_CODE_JOURNAL_UNREADABLE


def has_damaged_row(experiment: experiment_pb2.Experiment) -> bool:
    """Return True if the row of an experiment cannot be read, so that the message has little more than its id and the reason."""
    return experiment.reason_code == common_pb2.REASON_CODE_ROW_UNREADABLE
