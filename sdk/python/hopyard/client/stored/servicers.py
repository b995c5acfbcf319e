"""The queries of the scheduler, answered from the rows of AppStat of a cluster that does not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hopyard import __version__
from hopyard.client.stored.interruption import has_live_jobs, show_experiment, show_job
from hopyard.errors import DataLoss, InvalidInput, NotFound
from hopyard.v1 import appstat_pb2, common_pb2, data_pb2, experiment_pb2, job_manager_pb2, resource_manager_pb2
from hopyard.v1.data_pb2_grpc import DataServiceServicer
from hopyard.v1.experiment_pb2_grpc import ExperimentServiceServicer
from hopyard.v1.job_manager_pb2_grpc import JobManagerServiceServicer
from hopyard.v1.resource_manager_pb2_grpc import ResourceManagerServiceServicer

if TYPE_CHECKING:
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub, CatalogServiceAsyncStub

T = TypeVar("T")

_PAGE = 1000
_ENDED = frozenset(
    (
        experiment_pb2.EXPERIMENT_STATE_COMPLETED,
        experiment_pb2.EXPERIMENT_STATE_STOPPED,
        experiment_pb2.EXPERIMENT_STATE_FAILED,
    )
)


class StoredExperiments:
    """Reads experiments and jobs as they are shown while no cluster runs.

    Args:
        appstat: Client of the AppStat that reads the data.
        resume: Returns the command that continues an experiment, given its name if this is unique, else its id.
    """

    def __init__(self, appstat: AppStatServiceAsyncStub, resume: Callable[[str], str]) -> None:
        self._appstat = appstat
        self._resume = resume

    async def all(self) -> list[experiment_pb2.Experiment]:
        """Return all experiments, newest first.

        One whose row is damaged has the reason ROW_UNREADABLE. One with a damaged row of a job has a warning.
        """
        found: list[experiment_pb2.Experiment] = []
        request = appstat_pb2.QueryExperimentsRequest(page_size=_PAGE)
        while True:
            rows = await self._appstat.QueryExperiments(request)
            found += rows.experiments
            found += rows.damaged
            if not rows.next_page_token:
                break
            request.page_token = rows.next_page_token
        names = [one.name for one in found]
        for one in found:
            if one.state not in _ENDED and one.reason_code != common_pb2.REASON_CODE_ROW_UNREADABLE:
                named = one.name if names.count(one.name) == 1 else one.id
                jobs: list[experiment_pb2.Job] | None = None
                try:
                    jobs = await self.jobs(one.id) if has_live_jobs(one) else []
                except DataLoss as error:
                    one.warning = str(error)
                show_experiment(one, self._resume(named), jobs)
        return sorted(found, key=lambda one: (-one.created_at, one.id))

    async def one(self, name: str) -> experiment_pb2.Experiment:
        """Return the experiment with the id `name`.

        Raises:
            NotFound: The experiment does not exist. The message lists some existing ones.
        """
        found = await self.all()
        for one in found:
            if one.id == name:
                return one
        names = ", ".join(one.id for one in found[:10]) or "none"
        raise NotFound(f"there is no experiment {name!r}; there are: {names}")

    async def jobs(self, experiment: str) -> list[experiment_pb2.Job]:
        """Return the jobs of the experiment with an id, in order of creation; empty if there is no such experiment."""
        found: list[experiment_pb2.Job] = []
        request = appstat_pb2.QueryJobsRequest(experiment=experiment, page_size=_PAGE)
        while True:
            rows = await self._appstat.QueryJobs(request)
            found += rows.jobs
            if not rows.next_page_token:
                break
            request.page_token = rows.next_page_token
        for job in found:
            show_job(job)
        return found


class StoredExperimentServicer(ExperimentServiceServicer):
    """The ExperimentService of a cluster that does not run: its queries, answered from the rows of experiments in AppStat.

    All other calls raise `Conflict`: they need a running cluster.

    Args:
        experiments: Reads the rows of experiments and jobs in the cluster's database.
    """

    def __init__(self, experiments: StoredExperiments) -> None:
        self._experiments = experiments

    async def GetExperiment(
        self, request: experiment_pb2.GetExperimentRequest, context: Any
    ) -> experiment_pb2.GetExperimentResponse:
        """Return the experiment with the requested id. NotFound: it does not exist."""
        return experiment_pb2.GetExperimentResponse(experiment=await self._experiments.one(request.experiment))

    async def ListExperiments(
        self, request: experiment_pb2.ListExperimentsRequest, context: Any
    ) -> experiment_pb2.ListExperimentsResponse:
        """Return a page of the experiments, newest first; if the request names a state, only those in that state."""
        found = [one for one in await self._experiments.all() if request.state in (0, one.state)]
        shown, token = _page(found, request.page_size, request.page_token)
        return experiment_pb2.ListExperimentsResponse(experiments=shown, next_page_token=token)

    async def GetCluster(
        self, request: experiment_pb2.GetClusterRequest, context: Any
    ) -> experiment_pb2.GetClusterResponse:
        """Return the version of Hopyard in this process. There are no services, and so no addresses."""
        return experiment_pb2.GetClusterResponse(version=__version__)


class StoredJobServicer(JobManagerServiceServicer):
    """The JobManagerService of a cluster that does not run: GetJob and ListJobs, answered from the rows of jobs in AppStat.

    All other calls raise `Conflict`: they need a running cluster.

    Args:
        experiments: Reads the rows of experiments and jobs in the cluster's database.
    """

    def __init__(self, experiments: StoredExperiments) -> None:
        self._experiments = experiments

    async def GetJob(self, request: job_manager_pb2.GetJobRequest, context: Any) -> job_manager_pb2.GetJobResponse:
        """Return a job. NotFound: the experiment or the job does not exist."""
        for job in await self._experiments.jobs(request.experiment):
            if job.id == request.job:
                return job_manager_pb2.GetJobResponse(job=job)
        await self._experiments.one(request.experiment)
        raise NotFound(f"experiment {request.experiment} has no job {request.job!r}")

    async def ListJobs(
        self, request: job_manager_pb2.ListJobsRequest, context: Any
    ) -> job_manager_pb2.ListJobsResponse:
        """Return a page of the jobs of an experiment in order of creation; if the request names a state, only those in that state.

        NotFound: the experiment does not exist.
        """
        jobs = await self._experiments.jobs(request.experiment)
        if not jobs:
            await self._experiments.one(request.experiment)
        shown, token = _page(
            [job for job in jobs if request.state in (0, job.state)], request.page_size, request.page_token
        )
        return job_manager_pb2.ListJobsResponse(jobs=shown, next_page_token=token)


class StoredNodeServicer(ResourceManagerServiceServicer):
    """The list of the nodes whose folders are in the data directory. No run starts on them: they are DRAINING and have no slots.

    Args:
        folders: The folder of each node agent by the id of its node. Its path is the address of the node.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders

    async def ListNodes(
        self, request: resource_manager_pb2.ListNodesRequest, context: Any
    ) -> resource_manager_pb2.ListNodesResponse:
        """Return all nodes, on one page."""
        state = resource_manager_pb2.NODE_STATE_DRAINING
        nodes = [
            resource_manager_pb2.Node(id=node, address=str(folder), state=state)
            for node, folder in self._folders.items()
        ]
        return resource_manager_pb2.ListNodesResponse(nodes=nodes)


class StoredDataServicer(DataServiceServicer):
    """The queries of the data set catalog. No node is connected, so every replica is AWAY.

    Args:
        catalog: Client of the catalog that AppStat stores.
        experiments: Reads the experiments that use a data set.
    """

    def __init__(self, catalog: CatalogServiceAsyncStub, experiments: StoredExperiments) -> None:
        self._catalog = catalog
        self._experiments = experiments

    async def ListData(self, request: data_pb2.ListDataRequest, context: Any) -> data_pb2.ListDataResponse:
        """Return a page of the data sets, sorted by name."""
        shown, token = _page(await self._shown(""), request.page_size, request.page_token)
        return data_pb2.ListDataResponse(data=shown, next_page_token=token)

    async def GetData(self, request: data_pb2.GetDataRequest, context: Any) -> data_pb2.GetDataResponse:
        """Return the data set with the requested name. NotFound: it is not registered."""
        found = await self._shown(request.name)
        if not found:
            there = ", ".join(one.name for one in await self._shown("")) or "none"
            raise NotFound(f"there is no data set {request.name!r}; there are: {there} (hopyard data register)")
        return data_pb2.GetDataResponse(data=found[0])

    async def _shown(self, name: str) -> list[data_pb2.DataSet]:
        """Return the data set with a name, as a list that is empty if there is none; all data sets if `name` is empty."""
        found: list[data_pb2.DataSet] = []
        request = appstat_pb2.QueryDataSetsRequest(name=name)
        while True:
            rows = await self._catalog.QueryDataSets(request)
            found += [row.data for row in rows.data]
            if not rows.next_page_token:
                break
            request.page_token = rows.next_page_token
        using = [one for one in await self._experiments.all() if one.state not in _ENDED] if found else []
        for data in found:
            data.experiments.extend(sorted(one.id for one in using if _data_of(one) == data.name))
            for partition in data.partitions:
                for replica in partition.replicas:
                    replica.state = data_pb2.REPLICA_STATE_AWAY
                    replica.detail = f"node {replica.node} is not connected"
        return found


def _data_of(experiment: experiment_pb2.Experiment) -> str:
    """Return the name of the data set that an experiment uses; empty if it uses none."""
    import json

    data = json.loads(experiment.spec_json or "{}").get("data")
    return str(data.get("name", "") if isinstance(data, dict) else data or "")


def _page(items: Sequence[T], size: int, token: str) -> tuple[Sequence[T], str]:
    """Return one page of a list, and the token of the next page; an empty token: there is none.

    Args:
        items: The list.
        size: Maximum number of items of the page; 0: `_PAGE`.
        token: Index of the first item of the page, as text; empty: the first page.

    Raises:
        InvalidInput: The token is not such a text.
    """
    if token and not token.isdecimal():
        raise InvalidInput(f"page_token: found {token!r}; use the next_page_token of the previous response")
    start = int(token or 0)
    end = start + (size or _PAGE)
    return items[start:end], str(end) if end < len(items) else ""
