"""Converts requests that append to the journal into checked table rows, and the rows of a stream into projections."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from hopyard._net.rpc.values import check_report
from hopyard.errors import DataLoss, InvalidInput
from hopyard.v1 import appstat_pb2, common_pb2, experiment_pb2
from hopyard_appstat.rows import Row, message_of, row_of, statistic_of, statistic_row, stored_message, stored_row

if TYPE_CHECKING:
    from hopyard_appstat.database.queries import StreamProjections

_TRIAL: Final = itemgetter("experiment", "job")


@dataclass(frozen=True, slots=True)
class Append:
    """A batch of journal records and the projections that follow from them, to be written in one transaction.

    Attributes:
        epoch: Epoch of the scheduler that writes.
        records: Rows of the journal.
        projected: Rows of the projections.
        deleted: Streams to delete, each with the ids of its experiments.
        replaced: Streams whose rows are replaced: the id, the number of records, and the ids of the experiments of each.
    """

    epoch: int
    records: tuple[Row, ...]
    projected: ProjectedRows
    deleted: tuple[tuple[str, tuple[str, ...]], ...] = ()
    replaced: tuple[tuple[str, int, tuple[str, ...]], ...] = ()


def append_of(
    request: appstat_pb2.AppendJournalRequest
    | appstat_pb2.ImportJournalRequest
    | appstat_pb2.ReplaceProjectionsRequest,
) -> Append:
    """Return the rows of the journal records and projections in a request, after checking the projections.

    Raises:
        InvalidInput: A projection message contains no row, or a value is out of range.
    """
    projected = ProjectedRows(request.projections)
    if isinstance(request, appstat_pb2.ReplaceProjectionsRequest):
        replaced = tuple((one.stream, one.length, tuple(one.experiments)) for one in request.streams)
        return Append(request.epoch, (), projected, replaced=replaced)
    records = tuple(map(row_of, request.records))
    if isinstance(request, appstat_pb2.ImportJournalRequest):
        return Append(request.epoch, records, projected)
    deleted = tuple((one.stream, tuple(one.experiments)) for one in request.deleted)
    return Append(request.epoch, records, projected, deleted)


class ProjectedRows:
    """The table rows of a batch of projections.

    Of several rows with the same key, the last one is kept. Statistics are an exception: all are kept here, and the database keeps the
    first.

    Args:
        projections: The projections, in the order in which they apply.

    Attributes:
        experiments: Rows by the experiment's id.
        jobs: Rows by (experiment, job id).
        deleted_jobs: (experiment, job id) of the jobs whose rows are deleted.
        scaling: Rows by (training, hardware, number of slots).
        statistics: Rows in the order of the projections.
        plan_paths: The segments of a trial's path through the search plan, by (experiment, job).
        plan_snapshots: Rows by (experiment, job, position).

    Raises:
        InvalidInput: A projection message contains no row, or a value is out of range. The message names the field.
    """

    def __init__(self, projections: Iterable[appstat_pb2.Projection]) -> None:
        self.experiments: dict[str, Row] = {}
        self.jobs: dict[tuple[str, str], Row] = {}
        self.deleted_jobs: set[tuple[str, str]] = set()
        self.scaling: dict[tuple[str, str, int], Row] = {}
        self.statistics: list[Row] = []
        self.plan_paths: dict[tuple[str, str], list[Row]] = {}
        self.plan_snapshots: dict[tuple[str, str, int], Row] = {}
        for index, message in enumerate(projections):
            self._add(message, f"projections[{index}]")

    def _add(self, message: appstat_pb2.Projection, place: str) -> None:
        match message.WhichOneof("row"):
            case "experiment":
                self._add_experiment(message.experiment, f"{place}.experiment")
            case "job":
                self._add_job(message.job, f"{place}.job")
            case "deleted_job":
                _check_ids(message.deleted_job, f"{place}.deleted_job", "experiment", "id")
                key = message.deleted_job.experiment, message.deleted_job.id
                self.jobs.pop(key, None)
                self.deleted_jobs.add(key)
            case "statistic":
                one = message.statistic
                self._add_reports(one, f"{place}.statistic", {"report": one.report})
            case "statistics":
                same = message.statistics
                reports = {f"reports[{index}]": report for index, report in enumerate(same.reports)}
                self._add_reports(same, f"{place}.statistics", reports)
            case "plan_trial":
                self._add_trial(message.plan_trial, f"{place}.plan_trial")
            case "scaling":
                self._add_scaling(message.scaling, f"{place}.scaling")
            case _:
                raise InvalidInput(
                    f"{place}: found no row, allowed are experiment, job, deleted_job, statistic, statistics, plan_trial "
                    "and scaling"
                )

    def _add_experiment(self, message: experiment_pb2.Experiment, place: str) -> None:
        _check_ids(message, place, "id")
        _check_times(message, place, "created_at", "ended_at")
        self.experiments[message.id] = stored_row(message, "id", "state", "created_at")

    def _add_job(self, message: experiment_pb2.Job, place: str) -> None:
        _check_ids(message, place, "experiment", "id")
        key = message.experiment, message.id
        self.deleted_jobs.discard(key)
        self.jobs[key] = stored_row(message, "experiment", "id", "ordinal")

    def _add_reports(
        self,
        message: appstat_pb2.Statistic | appstat_pb2.Statistics,
        place: str,
        reports: Mapping[str, common_pb2.Report],
    ) -> None:
        experiment, job, attempt = message.experiment, message.job, message.attempt
        _check_ids(message, place, "experiment", "job")
        for name, report in reports.items():
            check_report(report, f"{place}.{name}")
            _check_times(report, f"{place}.{name}", "at", "seconds")
            self.statistics.append(statistic_row(experiment, job, attempt, report))

    def _add_trial(self, message: appstat_pb2.PlanTrial, place: str) -> None:
        _check_ids(message, place, "experiment", "job", "root")
        trial = {"experiment": message.experiment, "job": message.job}
        at, parent = 0, ""
        for index, one in enumerate(message.path):
            if not one.node or one.parent != parent or one.start != at or one.end <= at:
                raise InvalidInput(
                    f"{place}.path[{index}]: found node {one.node!r} with parent {one.parent!r} from {one.start} to {one.end}; "
                    f"allowed is one with a key and the parent {parent!r}, from {at} to a later position"
                )
            at, parent = one.end, one.node
        root = {"root": message.root}
        self.plan_paths[message.experiment, message.job] = [{**trial, **root, **row_of(one)} for one in message.path]
        for saved in message.snapshots:
            key = (message.experiment, message.job, saved.position)
            self.plan_snapshots[key] = {**trial, **row_of(saved)}

    def _add_scaling(self, message: appstat_pb2.Scaling, place: str) -> None:
        _check_ids(message, place, "training", "hardware")
        _check_times(message, place, "at")
        if message.slots < 1 or not 0 < message.seconds < math.inf:
            raise InvalidInput(
                f"{place}: found {message.seconds} s on {message.slots} slots, allowed are more than 0 s on 1 or more"
            )
        self.scaling[message.training, message.hardware, message.slots] = row_of(message)


def projections_of(found: StreamProjections) -> Iterator[appstat_pb2.Projection | appstat_pb2.DamagedRow]:
    """Yield the rows of a stream as projections, in the form of `ReadProjectionsResponse`; unreadable ones as `DamagedRow`."""
    for row in found.experiments:
        yield _read(row, "experiment", lambda one: {"experiment": stored_message(experiment_pb2.Experiment, one)})
    for row in found.jobs:
        yield _read(row, "job", lambda one: {"job": stored_message(experiment_pb2.Job, one)})
    for row in found.statistics:
        yield _read(row, "statistic", lambda one: {"statistic": statistic_of(one)})
    for row in found.scaling:
        yield _read(row, "scaling", lambda one: {"scaling": message_of(appstat_pb2.Scaling, one)})
    for (experiment, job), path in itertools.groupby(found.stretches, _TRIAL):
        parts = list(path), list(found.snapshots_of(experiment, job))
        yield _read({"experiment": experiment, "job": job, "parts": parts}, "plan_trial", _trial)
    for (experiment, job), snapshots in itertools.groupby(found.other_snapshots, _TRIAL):
        yield _read({"experiment": experiment, "job": job, "parts": ([], list(snapshots))}, "plan_trial", _trial)


def _trial(row: Row) -> dict[str, Message]:
    path, snapshots = row["parts"]
    trial = appstat_pb2.PlanTrial(
        experiment=row["experiment"], job=row["job"], root=(path[0]["root"] or "") if path else ""
    )
    for one in path:
        if one["node_start"] not in (None, one["start"]):
            raise DataLoss(f"node {one['node']} starts at {one['node_start']}, the segment in it at {one['start']}")
        trial.path.add(
            node=one["node"],
            parent=one["parent"] or "",
            start=one["start"],
            end=one["end"],
            values_json=one["values_json"] or "",
        )
    for one in snapshots:
        trial.snapshots.append(message_of(appstat_pb2.PlanSnapshot, one))
    return {"plan_trial": trial}


def _read(
    row: Row, kind: str, convert: Callable[[Row], dict[str, Any]]
) -> appstat_pb2.Projection | appstat_pb2.DamagedRow:
    try:
        return appstat_pb2.Projection(**convert(row))
    except (DataLoss, InvalidInput, AttributeError, TypeError, ValueError) as error:
        damaged = appstat_pb2.DamagedRow(row=kind, error=f"{error!s:.300}")
        damaged.experiment = str(row.get("experiment", row.get("id", "")))
        damaged.job = str(row.get("job", row["id"] if kind == "job" else ""))
        if isinstance(position := row.get("position"), int):
            damaged.position = position
        damaged.part = str(row.get("part", ""))
        return damaged


def _check_ids(message: Any, place: str, *fields: str) -> None:
    for field in fields:
        if not getattr(message, field):
            raise InvalidInput(f"{place}.{field}: found nothing, allowed is an id")


def _check_times(message: Any, place: str, *fields: str) -> None:
    for field in fields:
        if not math.isfinite(time := getattr(message, field)):
            raise InvalidInput(f"{place}.{field}: found {time}, allowed is a finite number of seconds")
