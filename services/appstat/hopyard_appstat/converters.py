"""Between AppStat's wire types and its plain values."""

from __future__ import annotations

from collections.abc import Sequence

from hopyard._net.rpc.values import hyperparameters_from_proto, report_from_proto, report_to_proto
from hopyard.errors import InvalidInput
from hopyard.v1 import appstat_pb2, common_pb2, data_pb2
from hopyard_appstat.records import (
    Append,
    BlobRow,
    DataSetRecord,
    ExperimentRow,
    JobRow,
    JournalRecord,
    NodeDetails,
    Page,
    PartitionRecord,
    PlanNode,
    PlanSnapshot,
    PlanTrial,
    Projection,
    ScalingRecord,
    StatisticRecord,
    StreamInfo,
    StretchRecord,
    Swept,
)


def append_from_proto(request: appstat_pb2.AppendJournalRequest | appstat_pb2.ImportJournalRequest) -> Append:
    """An append; raises InvalidInput for a projection without a row or with a report that is out of range."""
    return Append(
        request.epoch,
        tuple(record_from_proto(record) for record in request.records),
        tuple(
            row
            for index, message in enumerate(request.projections)
            for row in projections_from_proto(message, f"projections[{index}]")
        ),
    )


def record_from_proto(message: appstat_pb2.JournalRecord) -> JournalRecord:
    """A journal record."""
    return JournalRecord(message.stream, message.position, message.at, message.kind, message.payload)


def record_to_proto(record: JournalRecord) -> appstat_pb2.JournalRecord:
    """A journal record, back."""
    return appstat_pb2.JournalRecord(
        stream=record.stream, position=record.position, at=record.at, kind=record.kind, payload=record.payload
    )


def projections_from_proto(message: appstat_pb2.Projection, place: str = "projection") -> Sequence[Projection]:
    """The row that a projection has, or its rows."""
    match message.WhichOneof("row"):
        case "experiment":
            return (experiment_from_proto(message.experiment),)
        case "job":
            return (job_from_proto(message.job),)
        case "statistic":
            one = message.statistic
            return (_statistic(one.experiment, one.job, one.attempt, one.report, f"{place}.statistic"),)
        case "statistics":
            same = message.statistics
            experiment, job, attempt, place = same.experiment, same.job, same.attempt, f"{place}.statistics"
            return [_statistic(experiment, job, attempt, report, place) for report in same.reports]
        case "plan_trial":
            return (plan_trial_from_proto(message.plan_trial),)
        case "scaling":
            return (scaling_from_proto(message.scaling),)
        case _:
            raise InvalidInput(
                f"{place}: found no row, allowed are experiment, job, statistic, statistics, plan_trial and scaling"
            )


def experiment_from_proto(message: appstat_pb2.ExperimentRow) -> ExperimentRow:
    """An experiment's row."""
    return ExperimentRow(
        message.id, message.name, message.state, message.created_at, message.ended_at, message.detail_json
    )


def experiment_to_proto(row: ExperimentRow) -> appstat_pb2.ExperimentRow:
    """An experiment's row, back."""
    return appstat_pb2.ExperimentRow(
        id=row.id,
        name=row.name,
        state=row.state,
        created_at=row.created_at,
        ended_at=row.ended_at,
        detail_json=row.detail_json,
    )


def job_from_proto(message: appstat_pb2.JobRow) -> JobRow:
    """A job's row."""
    return JobRow(message.experiment, message.id, message.ordinal, message.state, message.detail_json)


def job_to_proto(row: JobRow) -> appstat_pb2.JobRow:
    """A job's row, back."""
    return appstat_pb2.JobRow(
        experiment=row.experiment, id=row.id, ordinal=row.ordinal, state=row.state, detail_json=row.detail_json
    )


def plan_trial_from_proto(message: appstat_pb2.PlanTrial) -> PlanTrial:
    """A trial's way through the search plan."""
    return PlanTrial(
        message.experiment,
        message.job,
        message.root,
        tuple(StretchRecord(one.node, one.parent, one.start, one.end, one.values_json) for one in message.path),
        tuple(
            PlanSnapshot(one.position, one.sha256, one.size_bytes, one.provider, one.owner) for one in message.snapshots
        ),
    )


def scaling_from_proto(message: appstat_pb2.Scaling) -> ScalingRecord:
    """What was measured of a training."""
    return ScalingRecord(**{name: getattr(message, name) for name in ScalingRecord.__slots__})


def scaling_to_proto(page: Page[ScalingRecord]) -> appstat_pb2.QueryScalingResponse:
    """A page of what was measured of a training."""
    rows = [appstat_pb2.Scaling(**{name: getattr(row, name) for name in ScalingRecord.__slots__}) for row in page.items]
    return appstat_pb2.QueryScalingResponse(scaling=rows, next_page_token=page.next_token)


def plan_nodes_to_proto(page: Page[PlanNode]) -> appstat_pb2.ListPlanNodesResponse:
    """A page of the search plan."""
    return appstat_pb2.ListPlanNodesResponse(nodes=map(_plan_node, page.items), next_page_token=page.next_token)


def plan_node_to_proto(
    details: NodeDetails, results: Page[StatisticRecord], *, whole: bool
) -> appstat_pb2.GetPlanNodeResponse:
    """A node with a page of its results; with `whole` its references and snapshots, too."""
    references = details.references if whole else ()
    snapshots = details.snapshots if whole else ()
    return appstat_pb2.GetPlanNodeResponse(
        node=_plan_node(details.node),
        references=[appstat_pb2.PlanReference(experiment=e, job=job, end=end) for e, job, end in references],
        snapshots=[
            appstat_pb2.PlanSnapshot(
                position=one.position,
                sha256=one.sha256,
                size_bytes=one.size_bytes,
                provider=one.provider,
                owner=one.owner,
            )
            for one in snapshots
        ],
        results=map(statistic_to_proto, results.items),
        next_page_token=results.next_token,
    )


def _plan_node(node: PlanNode) -> appstat_pb2.PlanNode:
    return appstat_pb2.PlanNode(**{name: getattr(node, name) for name in PlanNode.__slots__})


def _statistic(experiment: str, job: str, attempt: int, message: common_pb2.Report, place: str) -> StatisticRecord:
    try:
        report = report_from_proto(message)
    except InvalidInput as error:
        raise InvalidInput(f"{place}.{error}") from error
    in_force = hyperparameters_from_proto(message.in_force) if message.HasField("in_force") else None
    return StatisticRecord(experiment, job, attempt, report, message.at, in_force)


def statistic_to_proto(statistic: StatisticRecord) -> appstat_pb2.Statistic:
    """A statistic, back."""
    return appstat_pb2.Statistic(
        experiment=statistic.experiment,
        job=statistic.job,
        attempt=statistic.attempt,
        report=report_to_proto(statistic.report, at=statistic.at, in_force=statistic.in_force),
    )


def blobs_to_proto(page: Page[BlobRow], now: float) -> appstat_pb2.ListBlobsResponse:
    """A page of the index of blobs; `now` is on the clock of their times."""
    rows = [
        appstat_pb2.BlobInfo(
            sha256=row.sha256,
            size_bytes=row.size_bytes,
            unwanted_seconds=max(now - row.wanted_at, 0.0),
            owners=row.owners,
        )
        for row in page.items
    ]
    return appstat_pb2.ListBlobsResponse(blobs=rows, next_page_token=page.next_token)


def swept_to_proto(swept: Swept) -> appstat_pb2.SweepBlobsResponse:
    """What a sweep found."""
    return appstat_pb2.SweepBlobsResponse(
        partials=swept.partials,
        partial_bytes=swept.partial_bytes,
        unknown=swept.unknown,
        unknown_bytes=swept.unknown_bytes,
        unknown_kept=swept.unknown_kept,
    )


def streams_to_proto(page: Page[StreamInfo]) -> appstat_pb2.ListStreamsResponse:
    """A page of streams."""
    streams = [appstat_pb2.StreamInfo(stream=info.stream, length=info.length) for info in page.items]
    return appstat_pb2.ListStreamsResponse(streams=streams, next_page_token=page.next_token)


def statistics_to_proto(page: Page[StatisticRecord]) -> appstat_pb2.QueryStatisticsResponse:
    """A page of statistics."""
    rows = [statistic_to_proto(item) for item in page.items]
    return appstat_pb2.QueryStatisticsResponse(statistics=rows, next_page_token=page.next_token)


def experiments_to_proto(page: Page[ExperimentRow]) -> appstat_pb2.QueryExperimentsResponse:
    """A page of experiments."""
    rows = [experiment_to_proto(item) for item in page.items]
    return appstat_pb2.QueryExperimentsResponse(experiments=rows, next_page_token=page.next_token)


def jobs_to_proto(page: Page[JobRow]) -> appstat_pb2.QueryJobsResponse:
    """A page of jobs."""
    rows = [job_to_proto(item) for item in page.items]
    return appstat_pb2.QueryJobsResponse(jobs=rows, next_page_token=page.next_token)


def data_from_proto(request: appstat_pb2.PutDataSetRequest) -> DataSetRecord:
    """A data set of the catalog."""
    return DataSetRecord(
        request.data.name,
        request.request_id,
        request.data.registered_at,
        tuple(
            PartitionRecord(
                one.name,
                one.size_bytes,
                one.sha256,
                one.examples if one.HasField("examples") else None,
                one.url,
                tuple((replica.node, replica.path) for replica in one.replicas),
            )
            for one in request.data.partitions
        ),
    )


def data_to_proto(data: DataSetRecord) -> data_pb2.DataSet:
    """A data set of the catalog, back."""
    message = data_pb2.DataSet(name=data.name, registered_at=data.registered_at)
    for one in data.partitions:
        message.partitions.add(
            name=one.name,
            size_bytes=one.size_bytes,
            sha256=one.sha256,
            examples=one.examples,
            url=one.url,
            replicas=[data_pb2.DataReplica(node=node, path=path) for node, path in one.replicas],
        )
    return message


def data_sets_to_proto(page: Page[DataSetRecord]) -> appstat_pb2.QueryDataSetsResponse:
    """A page of data sets."""
    rows = [appstat_pb2.KeptDataSet(data=data_to_proto(item), request_id=item.request_id) for item in page.items]
    return appstat_pb2.QueryDataSetsResponse(data=rows, next_page_token=page.next_token)
