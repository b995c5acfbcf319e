"""A fake cluster in one process, whose jobs report metrics from a formula instead of training.

It serves all RPCs that the client and the command line use, over real gRPC, and stores its experiments in memory. The name of
an experiment selects its behaviour: in "failing" all jobs fail, in "silent" they print nothing, and in "endless" they report
nothing. A metric with the name "nothing" is reported as NaN.

`python -m tests.integration.cli.fake --data DIR` runs it as a process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio

from hopyard._net.auth import CallerKind, Principal
from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._net.server import Background, Server, run_service
from hopyard._runtime import snapshot_file
from hopyard.errors import Conflict, DataLoss, InvalidInput, NotFound
from hopyard.spec import SpecError, canonical_json, load_spec
from hopyard.v1 import (
    appstat_pb2,
    appstat_pb2_grpc,
    common_pb2,
    experiment_pb2,
    experiment_pb2_grpc,
    job_manager_pb2,
    job_manager_pb2_grpc,
    node_agent_pb2,
    node_agent_pb2_grpc,
    resource_manager_pb2,
    resource_manager_pb2_grpc,
)

Context = grpc.aio.ServicerContext[Any, Any]
RUNNING, PAUSED = experiment_pb2.EXPERIMENT_STATE_RUNNING, experiment_pb2.EXPERIMENT_STATE_PAUSED
ENDED = (experiment_pb2.EXPERIMENT_STATE_COMPLETED, experiment_pb2.EXPERIMENT_STATE_STOPPED)


class Search:
    """One experiment of the fake cluster and its jobs, which are trained one after another."""

    def __init__(self, name: str, experiment: experiment_pb2.Experiment, jobs: int, longest: int, pace: float) -> None:
        self.experiment = experiment
        self.jobs = {
            str(number): experiment_pb2.Job(
                experiment=experiment.id,
                id=str(number),
                state=common_pb2.JOB_STATE_PENDING,
                hyperparameters=hyperparameters_to_proto({"lr": 0.1 * number, "layers": number}),
            )
            for number in range(1, jobs + 1)
        }
        self.statistics: list[appstat_pb2.Statistic] = []
        self.longest = longest
        self.pace = pace
        self.going, self.watched = asyncio.Event(), asyncio.Event()
        self.going.set()
        self.watchers: set[asyncio.Queue[experiment_pb2.WatchExperimentResponse]] = set()

    def tell(self, **change: Any) -> None:
        message = experiment_pb2.WatchExperimentResponse()
        message.CopyFrom(experiment_pb2.WatchExperimentResponse(**change))
        for queue in self.watchers:
            queue.put_nowait(message)

    def enter(self, state: experiment_pb2.ExperimentState.ValueType) -> None:
        self.experiment.state = state
        self.tell(experiment=self.experiment)


if TYPE_CHECKING:
    _Services = object  # The typed servicers require every method; a method that is missing here returns UNIMPLEMENTED.
else:

    class _Services(
        experiment_pb2_grpc.ExperimentServiceServicer,
        job_manager_pb2_grpc.JobManagerServiceServicer,
        resource_manager_pb2_grpc.ResourceManagerServiceServicer,
        appstat_pb2_grpc.AppStatServiceServicer,
        node_agent_pb2_grpc.NodeAgentServiceServicer,
    ):
        pass


class _Tickets:
    """Accepts the tickets of a fake cluster, METHOD OBJECT, and no token of a user. `seen` has everything that was sent."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def authenticate(self, token: str) -> Principal | None:
        self.seen.append(token)
        method, space, scope = token.partition(" ")
        return Principal(CallerKind.TICKET, method, scope) if space else None


class FakeCluster(_Services):
    """The services of a fake cluster with one node.

    With `hold` greater than 0, an experiment starts when a client watches it, and stops after `hold` reports until it is resumed.
    """

    def __init__(
        self, *, data: Path | None = None, pace: float = 0.002, hold: int = 0, name: str = "scheduler"
    ) -> None:
        self.server = Server(name, data=data)
        self.tickets = _Tickets()
        self.node_server = Server("agent", authenticator=self.tickets)
        self.background = Background("fake")
        self.searches: dict[str, Search] = {}
        self.requests: dict[str, str] = {}
        self.blobs: dict[str, bytes] = {}
        self.puts = 0
        self.pace = pace
        self.hold = hold
        self.silent_watches = 0  # Number of next watches that send nothing.

    async def start(self) -> str:
        services: tuple[tuple[str, Any], ...] = (
            ("ExperimentService", experiment_pb2_grpc.add_ExperimentServiceServicer_to_server),
            ("JobManagerService", job_manager_pb2_grpc.add_JobManagerServiceServicer_to_server),
            ("ResourceManagerService", resource_manager_pb2_grpc.add_ResourceManagerServiceServicer_to_server),
            ("AppStatService", appstat_pb2_grpc.add_AppStatServiceServicer_to_server),
        )
        for service, register in services:
            self.server.add(register, self, f"hopyard.v1.{service}")
        add_node: Any = node_agent_pb2_grpc.add_NodeAgentServiceServicer_to_server
        self.node_server.add(add_node, self, "hopyard.v1.NodeAgentService")
        await self.node_server.start()
        return await self.server.start()

    async def stop(self) -> None:
        await self.server.stop(grace=0.2)
        await self.node_server.stop(grace=0.2)
        await self.background.stop()

    def search(self, experiment: str) -> Search:
        if experiment not in self.searches:
            raise NotFound(f"no experiment {experiment!r}; there are: {', '.join(self.searches) or 'none'}")
        return self.searches[experiment]

    async def _train(self, search: Search) -> None:
        if self.hold:
            await search.watched.wait()
        for job in list(search.jobs.values()):
            if job.state == common_pb2.JOB_STATE_COMPLETED:
                continue
            job.state, job.attempt = common_pb2.JOB_STATE_RUNNING, 1
            if search.experiment.name == "failing":
                job.state, job.reason = common_pb2.JOB_STATE_FAILED, "KeyError: 'lr'\n  in line 3"
                search.tell(job=job)
                continue
            job.slots.append("local/0")
            search.experiment.slots = 1
            if search.experiment.name == "endless":
                await asyncio.Event().wait()
            while job.position < search.longest and search.experiment.state not in ENDED:
                await search.going.wait()
                await asyncio.sleep(search.pace)
                self._report(search, job)
                if len(search.statistics) == self.hold:
                    search.going.clear()
            if search.experiment.state in ENDED:
                return
            job.state = common_pb2.JOB_STATE_COMPLETED
            del job.slots[:]
            job.snapshots.append(self._snapshot(job))
            search.tell(job=job)
        search.experiment.slots = 0
        search.enter(experiment_pb2.EXPERIMENT_STATE_COMPLETED)

    def _report(self, search: Search, job: experiment_pb2.Job) -> None:
        job.position += 1
        value = 1.0 - math.exp(-job.position / 4.0) / int(job.id)
        experiment = search.experiment
        metrics = {"accuracy": value, "loss": 1.0 - value, "nothing": math.nan}
        ours = experiment.metric.name == "accuracy"
        if ours:
            job.last_value = value
        if ours and (not job.HasField("best_value") or value > job.best_value):
            job.best_value, job.best_position = value, job.position
        if ours and (not experiment.HasField("best_value") or value > experiment.best_value):
            experiment.best_job, experiment.best_value, experiment.best_position = job.id, value, job.position
        report = common_pb2.Report(position=job.position, metrics=metrics, seconds=search.pace)
        search.statistics.append(appstat_pb2.Statistic(experiment=experiment.id, job=job.id, attempt=1, report=report))
        search.tell(job=job)
        search.tell(report=experiment_pb2.JobReport(job=job.id, report=report))
        search.tell(experiment=experiment)

    def _snapshot(self, job: experiment_pb2.Job) -> common_pb2.Snapshot:
        with tempfile.TemporaryDirectory() as scratch:
            state = Path(scratch) / "state"
            state.mkdir()
            (state / "weights.txt").write_text(f"job {job.id} at {job.position}")
            packed = Path(scratch) / "packed"
            info = snapshot_file.pack(state, packed)
            self.blobs[info.sha256] = packed.read_bytes()
        return common_pb2.Snapshot(
            job=job.id,
            position=job.position,
            sha256=info.sha256,
            size_bytes=info.size,
            provider="framework",
            stored=True,
        )

    async def CreateExperiment(self, request: Any, context: Context) -> experiment_pb2.CreateExperimentResponse:
        if request.request_id not in self.requests:
            try:
                spec = load_spec(request.spec, request.source)
            except SpecError as error:
                raise InvalidInput(str(error)) from error
            if request.bundle and request.bundle not in self.blobs:
                raise Conflict(f"bundle {request.bundle} is not in the store")
            name = f"e{len(self.searches) + 1}"
            experiment = experiment_pb2.Experiment(
                id=name,
                name=spec.name,
                state=RUNNING,
                spec_json=canonical_json(spec),
                bundle=request.bundle,
                metric=common_pb2.Metric(name=spec.metric.name, mode=common_pb2.METRIC_MODE_MAX),
            )
            search = Search(name, experiment, spec.stop.jobs or 2, spec.stop.max_iterations or 5, self.pace)
            self.searches[name] = search
            self.requests[request.request_id] = name
            self.background.start(self._train(search), name=name)
        created = self.search(self.requests[request.request_id]).experiment
        note = "policy asha: there are too few" if '"asha"' in created.spec_json else ""
        return experiment_pb2.CreateExperimentResponse(experiment=created, note=note)

    async def GetExperiment(self, request: Any, context: Context) -> experiment_pb2.GetExperimentResponse:
        return experiment_pb2.GetExperimentResponse(experiment=self.search(request.experiment).experiment)

    async def ListExperiments(self, request: Any, context: Context) -> experiment_pb2.ListExperimentsResponse:
        """List one experiment per page, so that clients must request further pages."""
        there = [search.experiment for search in reversed(self.searches.values())]
        there = [one for one in there if request.state in (0, one.state)]
        begin = int(request.page_token or 0)
        token = str(begin + 1) if begin + 1 < len(there) else ""
        return experiment_pb2.ListExperimentsResponse(experiments=there[begin : begin + 1], next_page_token=token)

    async def WatchExperiment(
        self, request: Any, context: Context
    ) -> AsyncIterator[experiment_pb2.WatchExperimentResponse]:
        if self.silent_watches:
            self.silent_watches -= 1
            await asyncio.Event().wait()
        search = self.search(request.experiment)
        queue: asyncio.Queue[experiment_pb2.WatchExperimentResponse] = asyncio.Queue()
        search.watchers.add(queue)
        search.watched.set()
        try:
            # The message is used twice: it is copied, because the search changes its own.
            search_now = experiment_pb2.WatchExperimentResponse(experiment=search.experiment)
            yield search_now
            for job in list(search.jobs.values()):
                yield experiment_pb2.WatchExperimentResponse(job=job)
            ended = search_now.experiment.state in ENDED
            while not ended:
                message = await queue.get()
                ended = message.WhichOneof("change") == "experiment" and message.experiment.state in ENDED
                yield message
        finally:
            search.watchers.discard(queue)

    async def PauseExperiment(self, request: Any, context: Context) -> experiment_pb2.PauseExperimentResponse:
        search = self.search(request.experiment)
        if search.experiment.state in ENDED:
            raise Conflict(f"experiment {request.experiment} has ended")
        search.going.clear()
        for job in search.jobs.values():
            if job.state == common_pb2.JOB_STATE_RUNNING:
                job.state = common_pb2.JOB_STATE_SUSPENDED
                search.tell(job=job)
        search.enter(PAUSED)
        return experiment_pb2.PauseExperimentResponse(experiment=search.experiment)

    async def ResumeExperiment(self, request: Any, context: Context) -> experiment_pb2.ResumeExperimentResponse:
        search = self.search(request.experiment)
        search.enter(RUNNING)
        search.going.set()
        return experiment_pb2.ResumeExperimentResponse(experiment=search.experiment)

    async def StopExperiment(self, request: Any, context: Context) -> experiment_pb2.StopExperimentResponse:
        search = self.search(request.experiment)
        search.experiment.reason = "stopped by a person"
        search.enter(experiment_pb2.EXPERIMENT_STATE_STOPPED)
        search.going.set()
        return experiment_pb2.StopExperimentResponse(experiment=search.experiment)

    async def ExtendExperiment(self, request: Any, context: Context) -> experiment_pb2.ExtendExperimentResponse:
        search = self.search(request.experiment)
        if not request.request_id:
            raise InvalidInput("request_id: is required")
        for number in range(len(search.jobs) + 1, len(search.jobs) + 1 + request.jobs):
            search.jobs[str(number)] = experiment_pb2.Job(
                experiment=search.experiment.id, id=str(number), state=common_pb2.JOB_STATE_PENDING
            )
        search.longest = request.max_iterations or search.longest
        search.enter(RUNNING)
        self.background.start(self._train(search), name=f"{search.experiment.id} again")
        return experiment_pb2.ExtendExperimentResponse(experiment=search.experiment)

    async def UpdateExperiment(self, request: Any, context: Context) -> experiment_pb2.UpdateExperimentResponse:
        search = self.search(request.experiment)
        spec = json.loads(search.experiment.spec_json)
        for term in ("slots", "concurrency"):
            if request.HasField(term) or term in request.clear:
                spec["resources"][term] = getattr(request, term) if request.HasField(term) else None
        if request.HasField("weight"):
            spec["weight"] = request.weight
        if request.HasField("target"):
            search.experiment.metric.target = request.target
        if "target" in request.clear:
            search.experiment.metric.ClearField("target")
        search.experiment.spec_json = json.dumps(spec)
        return experiment_pb2.UpdateExperimentResponse(experiment=search.experiment)

    def _act(self, request: Any, state: common_pb2.JobState.ValueType, reason: str) -> experiment_pb2.Job:
        search = self.search(request.experiment)
        if request.job not in search.jobs:
            raise NotFound(f"experiment {request.experiment} has no job {request.job!r}")
        job = search.jobs[request.job]
        job.state, job.reason = state, reason
        search.tell(job=job)
        return job

    async def PauseJob(self, request: Any, context: Context) -> job_manager_pb2.PauseJobResponse:
        return job_manager_pb2.PauseJobResponse(job=self._act(request, common_pb2.JOB_STATE_HELD, "paused by a person"))

    async def UnpauseJob(self, request: Any, context: Context) -> job_manager_pb2.UnpauseJobResponse:
        return job_manager_pb2.UnpauseJobResponse(job=self._act(request, common_pb2.JOB_STATE_SUSPENDED, ""))

    async def TerminateJob(self, request: Any, context: Context) -> job_manager_pb2.TerminateJobResponse:
        return job_manager_pb2.TerminateJobResponse(
            job=self._act(request, common_pb2.JOB_STATE_TERMINATED, "terminated")
        )

    async def GetCluster(self, request: Any, context: Context) -> experiment_pb2.GetClusterResponse:
        return experiment_pb2.GetClusterResponse(epoch=1, appstat_address=self.server.address, version="0")

    async def GetJob(self, request: Any, context: Context) -> job_manager_pb2.GetJobResponse:
        jobs = self.search(request.experiment).jobs
        if request.job not in jobs:
            raise NotFound(f"experiment {request.experiment} has no job {request.job!r}")
        return job_manager_pb2.GetJobResponse(job=jobs[request.job])

    async def ListJobs(self, request: Any, context: Context) -> job_manager_pb2.ListJobsResponse:
        jobs = self.search(request.experiment).jobs.values()
        return job_manager_pb2.ListJobsResponse(jobs=[job for job in jobs if request.state in (0, job.state)])

    async def IssueTicket(self, request: Any, context: Context) -> resource_manager_pb2.IssueTicketResponse:
        return resource_manager_pb2.IssueTicketResponse(ticket=f"{request.method} {request.object}")

    async def ListNodes(self, request: Any, context: Context) -> resource_manager_pb2.ListNodesResponse:
        slot = resource_manager_pb2.Slot(id="local/0", node="local", cpus=1)
        node = resource_manager_pb2.Node(
            id="local",
            address=self.node_server.address,
            state=resource_manager_pb2.NODE_STATE_UP,
            slots=[slot],
            silent_seconds=0.5,
        )
        return resource_manager_pb2.ListNodesResponse(nodes=[node])

    async def DrainNode(self, request: Any, context: Context) -> resource_manager_pb2.DrainNodeResponse:
        left = request.deadline_seconds if request.HasField("deadline_seconds") else None
        return resource_manager_pb2.DrainNodeResponse(
            node=self._node(request.node, resource_manager_pb2.NODE_STATE_DRAINING, left)
        )

    async def UndrainNode(self, request: Any, context: Context) -> resource_manager_pb2.UndrainNodeResponse:
        up = resource_manager_pb2.NODE_STATE_UP
        return resource_manager_pb2.UndrainNodeResponse(node=self._node(request.node, up))

    async def ForgetNode(self, request: Any, context: Context) -> resource_manager_pb2.ForgetNodeResponse:
        if not request.force:
            raise Conflict(f"node {request.node} had the only copies of 1 snapshot of e1. Use --force")
        return resource_manager_pb2.ForgetNodeResponse()

    def _node(
        self, name: str, state: resource_manager_pb2.NodeState.ValueType, left: float | None = None
    ) -> resource_manager_pb2.Node:
        if name != "local":
            raise NotFound(f"there is no node {name!r}; there are: local")
        return resource_manager_pb2.Node(id=name, state=state, drain_seconds_left=left)

    async def QueryStatistics(self, request: Any, context: Context) -> appstat_pb2.QueryStatisticsResponse:
        wanted = [one for one in self.search(request.experiment).statistics if request.job in ("", one.job)]
        begin = int(request.page_token or 0)
        token = str(begin + 7) if begin + 7 < len(wanted) else ""
        return appstat_pb2.QueryStatisticsResponse(statistics=wanted[begin : begin + 7], next_page_token=token)

    async def HasBlobs(self, request: Any, context: Context) -> appstat_pb2.HasBlobsResponse:
        return appstat_pb2.HasBlobsResponse(sha256=[name for name in request.sha256 if name in self.blobs])

    async def PutBlob(self, requests: Any, context: Context) -> appstat_pb2.PutBlobResponse:
        name, data = "", b""
        async for request in requests:
            name, data = name or request.sha256, data + request.data
        if hashlib.sha256(data).hexdigest() != name:
            raise DataLoss("the hash differs")
        self.blobs[name] = data
        self.puts += 1
        return appstat_pb2.PutBlobResponse(size_bytes=len(data))

    async def GetBlob(self, request: Any, context: Context) -> AsyncIterator[appstat_pb2.GetBlobResponse]:
        if request.sha256 not in self.blobs:
            raise NotFound(f"no blob {request.sha256}")
        data = self.blobs[request.sha256]
        for begin in range(0, len(data), 1000):
            yield appstat_pb2.GetBlobResponse(data=data[begin : begin + 1000])

    async def StreamLogs(self, request: Any, context: Context) -> AsyncIterator[node_agent_pb2.StreamLogsResponse]:
        if self.search(request.experiment).experiment.name == "silent":
            raise NotFound("no log on this node")
        lines = [f"job {request.job} line {number}\n".encode() for number in range(3)]
        offset = 0
        for line in lines:
            if offset >= request.offset:
                yield node_agent_pb2.StreamLogsResponse(data=line, offset=offset)
            offset += len(line)


def main() -> None:
    arguments = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False))

    async def serve(stop: asyncio.Event) -> None:
        cluster = FakeCluster(
            data=Path(arguments["--data"]),
            pace=float(arguments.get("--pace", "0.002")),
            hold=int(arguments.get("--hold", "0")),
            name=arguments.get("--name", "scheduler"),
        )
        await cluster.start()
        try:
            await cluster.background.wait(stop)
        finally:
            await cluster.stop()

    if "--fail" in arguments:
        sys.stderr.write(json.dumps({"died of": arguments["--fail"]}) + "\n")
        sys.exit(3)
    sys.exit(run_service(serve, name="fake"))


if __name__ == "__main__":
    main()
