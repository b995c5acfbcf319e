"""AppStat's gRPC servicers for reading, which need no writer: the running service and `hopyard_appstat.reader` use them.

The proto file documents requests and responses. The caller turns exceptions into status codes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from hopyard._net.rpc.reasons import set_reason
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard.v1 import appstat_pb2 as pb
from hopyard.v1 import appstat_pb2_grpc, common_pb2, experiment_pb2
from hopyard_appstat.database.queries import StreamProjections
from hopyard_appstat.database.store_reader import StoreReader
from hopyard_appstat.pagination import PageRequest
from hopyard_appstat.projections import projections_of
from hopyard_appstat.rows import Row, data_set_of, message_of, readable_message, statistic_of, stored_message
from hopyard_appstat.spool import AnswerSpool

M = TypeVar("M", bound=Message)

_STATES: Final = frozenset(experiment_pb2.ExperimentState.values()) - {experiment_pb2.EXPERIMENT_STATE_UNSPECIFIED}
_PART: Final = 500
"""Number of rows in one message."""


class AppStatQueries(appstat_pb2_grpc.AppStatServiceServicer):
    """The queries of the journal, the statistics and the rows of experiments and jobs.

    Args:
        reader: The database.
        scratch: Folder for temporary files that buffer long answers; None: that of the system.
    """

    def __init__(self, reader: StoreReader, scratch: Path | None = None) -> None:
        self._reader = reader
        self._answers = scratch

    async def ReadJournal(self, request: pb.ReadJournalRequest, context: Any) -> AsyncIterator[pb.ReadJournalResponse]:
        """Send the records of one stream, from a position to the last record at the time of the call, and end.

        InvalidInput: the position is negative.
        """
        async for records in self._reader.read_journal(request.stream, request.from_position):
            yield pb.ReadJournalResponse(records=messages(pb.JournalRecord, records))

    async def ReadProjections(
        self, request: pb.ReadProjectionsRequest, context: Any
    ) -> AsyncIterator[pb.ReadProjectionsResponse]:
        """Send the rows that follow from the journal of one stream, and the length of the stream in each message."""

        def save(found: StreamProjections) -> AnswerSpool:
            spool = AnswerSpool(self._answers)
            try:
                spool.add(pb.ReadProjectionsResponse(length=found.length))
                rows = projections_of(found)
                while part := list(itertools.islice(rows, _PART)):
                    projections = [one for one in part if isinstance(one, pb.Projection)]
                    damaged = [one for one in part if isinstance(one, pb.DamagedRow)]
                    spool.add(pb.ReadProjectionsResponse(length=found.length, projections=projections, damaged=damaged))
            except BaseException:
                spool.close()
                raise
            return spool

        spool = await self._reader.read_projections(
            request.stream, tuple(request.experiments), tuple(request.trainings), save
        )
        with closing(spool):
            saved = spool.messages()
            while (message := await asyncio.to_thread(next, saved, None)) is not None:
                yield message

    async def ListStreams(self, request: pb.ListStreamsRequest, context: Any) -> pb.ListStreamsResponse:
        """Return a page of the streams."""
        paging = PageRequest.of(request.page_size, request.page_token, "streams")
        page = await self._reader.list_streams(paging)
        return pb.ListStreamsResponse(streams=messages(pb.StreamInfo, page.items), next_page_token=page.next_token)

    async def QueryStatistics(self, request: pb.QueryStatisticsRequest, context: Any) -> pb.QueryStatisticsResponse:
        """Return a page of the statistics of an experiment, or of one of its jobs if the request names a job."""
        paging = PageRequest.of(request.page_size, request.page_token, "statistics", request.experiment, request.job)
        page = await self._reader.query_statistics(request.experiment, request.job, paging)
        return pb.QueryStatisticsResponse(statistics=map(statistic_of, page.items), next_page_token=page.next_token)

    async def QueryExperiments(self, request: pb.QueryExperimentsRequest, context: Any) -> pb.QueryExperimentsResponse:
        """Return a page of the experiments, newest first; if the request names a state, only those in that state.

        Experiments whose row cannot be read are in the field `damaged` of the response.
        """
        paging = PageRequest.of(request.page_size, request.page_token, "experiments", str(request.state))
        page = await self._reader.query_experiments(request.state, paging)
        answer = pb.QueryExperimentsResponse(next_page_token=page.next_token)
        for row in page.items:
            found = readable_message(experiment_pb2.Experiment, row)
            if isinstance(found, str):
                answer.damaged.append(_damaged_experiment(row, found))
            else:
                answer.experiments.append(found)
        return answer

    async def QueryJobs(self, request: pb.QueryJobsRequest, context: Any) -> pb.QueryJobsResponse:
        """Return a page of the jobs of an experiment."""
        paging = PageRequest.of(request.page_size, request.page_token, "jobs", request.experiment)
        page = await self._reader.query_jobs(request.experiment, paging)
        found = (stored_message(experiment_pb2.Job, row) for row in page.items)
        return pb.QueryJobsResponse(jobs=found, next_page_token=page.next_token)

    async def QueryScaling(self, request: pb.QueryScalingRequest, context: Any) -> pb.QueryScalingResponse:
        """Return a page of the scaling profiles of a training, which the request identifies by its hash."""
        paging = PageRequest.of(request.page_size, request.page_token, "scaling", request.training)
        page = await self._reader.query_scaling(request.training, paging)
        return pb.QueryScalingResponse(scaling=messages(pb.Scaling, page.items), next_page_token=page.next_token)


class SearchPlanServicer(appstat_pb2_grpc.SearchPlanServiceServicer):
    """The gRPC servicer that reads the search plan: what experiments trained, as a tree of nodes.

    Args:
        reader: The database, which contains the search plan.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    async def ListPlanNodes(self, request: pb.ListPlanNodesRequest, context: Any) -> pb.ListPlanNodesResponse:
        """Return a page of the nodes of the search plan with one root."""
        paging = PageRequest.of(request.page_size, request.page_token, "plan", request.root)
        page = await self._reader.list_plan_nodes(request.root, paging)
        return pb.ListPlanNodesResponse(nodes=messages(pb.PlanNode, page.items), next_page_token=page.next_token)

    async def GetPlanNode(self, request: pb.GetPlanNodeRequest, context: Any) -> pb.GetPlanNodeResponse:
        """Return one node of the search plan with a page of its results. NotFound: no node has the key of the request.

        The response with the first page also contains the trials that pass through the node (references) and their snapshots.
        """
        paging = PageRequest.of(request.page_size, request.page_token, "node", request.key)
        details = await self._reader.plan_node(request.key)
        results = await self._reader.plan_results(request.key, paging)
        answer = pb.GetPlanNodeResponse(
            node=message_of(pb.PlanNode, details.node),
            results=map(statistic_of, results.items),
            next_page_token=results.next_token,
        )
        if not request.page_token:
            answer.references.extend(messages(pb.PlanReference, details.references))
            answer.snapshots.extend(messages(pb.PlanSnapshot, details.snapshots))
        return answer


class CatalogQueries(appstat_pb2_grpc.CatalogServiceServicer):
    """The query of the data set catalog.

    Args:
        reader: The database, which contains the catalog.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader

    async def QueryDataSets(self, request: pb.QueryDataSetsRequest, context: Any) -> pb.QueryDataSetsResponse:
        """Return a page of the data sets; if the request has a name, only the data set with it, or an empty page if there is none."""
        paging = PageRequest.of(request.page_size, request.page_token, "data", request.name)
        page = await self._reader.query_data(request.name, paging)
        kept = [pb.KeptDataSet(data=data_set_of(row), request_id=row["request_id"]) for row in page.items]
        return pb.QueryDataSetsResponse(data=kept, next_page_token=page.next_token)


def _damaged_experiment(row: Row, found: str) -> experiment_pb2.Experiment:
    """Return what is known of an experiment whose row cannot be read, with the reason; `found` is what the row contains instead."""
    state = row["state"] if row["state"] in _STATES else experiment_pb2.EXPERIMENT_STATE_PAUSED
    name, created_at = row["id"], row["created_at"]
    if isinstance(name, bytes):
        name = name.decode("utf-8", "backslashreplace")
    known = experiment_pb2.Experiment(id=name, name=name, state=state)
    if isinstance(created_at, float):
        known.created_at = created_at
    known.metric.mode = common_pb2.METRIC_MODE_MAX
    set_reason(known, Reason.of(ReasonCode.ROW_UNREADABLE, error=f"found {found}", experiment=name))
    return known


def messages(kind: type[M], rows: Iterable[Row]) -> Iterator[M]:
    """Yield a message of type `kind` for each row: the columns become the fields with the same names."""
    return (message_of(kind, row) for row in rows)
