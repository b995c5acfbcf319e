"""Builders of AppStat messages for the tests of its database."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from google.protobuf.message import Message

from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1 import common_pb2
from hopyard.v1.experiment_pb2 import Experiment, ExperimentState, Job
from hopyard_appstat import rows as database
from hopyard_appstat.projections import Append, append_of

M = TypeVar("M", bound=Message)
Row = Experiment | Job | pb.DeletedJob | pb.Statistic | pb.Statistics | pb.PlanTrial | pb.Scaling

_FIELDS: Final = {
    Experiment: "experiment",
    Job: "job",
    pb.DeletedJob: "deleted_job",
    pb.Statistic: "statistic",
    pb.Statistics: "statistics",
    pb.PlanTrial: "plan_trial",
    pb.Scaling: "scaling",
}


def projection(row: Row) -> pb.Projection:
    """Return the projection that contains a row."""
    return pb.Projection(**{_FIELDS[type(row)]: row})  # type: ignore[arg-type]


def record(stream: str, position: int, at: float = 1.5, payload: bytes = b"") -> pb.JournalRecord:
    """Return a journal record of a stream."""
    return pb.JournalRecord(stream=stream, position=position, at=at, kind="Kind", payload=payload, version=2)


def append(epoch: int, records: Iterable[pb.JournalRecord] = (), rows: Iterable[Row] = ()) -> Append:
    """Return an append of records and of the projections of rows."""
    return append_of(pb.AppendJournalRequest(epoch=epoch, records=records, projections=map(projection, rows)))


def all_of(kind: type[M], rows: Iterable[database.Row]) -> list[M]:
    """Return the messages of one kind whose fields database rows have as columns."""
    return [database.message_of(kind, row) for row in rows]


def stored(kind: type[M], rows: Iterable[database.Row]) -> list[M]:
    """Return the messages of one kind that database rows contain serialized."""
    return [database.stored_message(kind, row) for row in rows]


def experiment(name: str, state: str = "RUNNING", created_at: float = 0.0, ended_at: float = 0.0) -> Experiment:
    """Return an experiment; `name` is its id."""
    number = ExperimentState.Value(f"EXPERIMENT_STATE_{state}")
    return Experiment(id=name, name="digits", state=number, created_at=created_at, ended_at=ended_at)


def job(experiment: str, name: str, ordinal: int = 1, state: str = "RUNNING") -> Job:
    """Return a job; `name` is its id."""
    number = common_pb2.JobState.Value(f"JOB_STATE_{state}")
    return Job(experiment=experiment, id=name, ordinal=ordinal, state=number)


def statistic(
    experiment: str,
    job: str,
    position: int,
    value: float = 0.0,
    *,
    attempt: int = 1,
    seconds: float = 0.5,
    at: float = 2.5,
    part: str = "",
) -> pb.Statistic:
    """Return a statistic with one metric, `acc`."""
    report = common_pb2.Report(position=position, metrics={"acc": value}, seconds=seconds, at=at, part=part)
    return pb.Statistic(experiment=experiment, job=job, attempt=attempt, report=report)
