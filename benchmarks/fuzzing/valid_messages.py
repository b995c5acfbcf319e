"""Records valid requests of all methods of the services, from a small cluster that people and programs use.

`record` runs scheduler, AppStat, hpgen and a node agent in this process, and records on the server side what they receive while a
scenario creates, changes and deletes experiments of all kinds. Only training processes and a policy are other processes. Requests that
the scenario does not cause are in the table `WRITTEN`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from figures.cluster import NOOP, noop_spec
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

from hopyard._net.auth import CallerKind, find_token
from hopyard._net.rpc import Channel, channel
from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard._net.server import server
from hopyard._net.server.interceptor import ErrorInterceptor
from hopyard.client import AsyncClient
from hopyard.client.datasets import DataPartition, DataReplica
from hopyard.client.types import ExperimentState, JobState
from hopyard.client.wire.connection import Connection
from hopyard.errors import HopyardError
from hopyard.v1 import (
    application_pb2,
    appstat_pb2,
    appstat_pb2_grpc,
    common_pb2,
    experiment_pb2,
    hpgen_pb2,
    job_manager_pb2,
    node_agent_pb2,
    resource_manager_pb2,
)
from hopyard_appstat.service import AppStatService
from hopyard_engine.core.events import StreamCreated
from hopyard_engine.journal.codec import event_of
from hopyard_hpgen.service import HpgenService
from hopyard_nodeagent.agent import NodeAgent
from hopyard_nodeagent.settings import AgentSettings, SlotSettings
from hopyard_scheduler.runtime.journal import stored
from hopyard_scheduler.service import SchedulerService

Recordings = Mapping[str, Sequence[Sequence[bytes]]]
"""Calls by full name of the method, such as "hopyard.v1.AppStatService.GetBlob". A call is the sequence of its serialized requests."""

DATA_SET: Final = "numbers"
"""Name of the data set of the scenario. Requests about it are valid in every cluster that has a data set of this name."""

_SCENARIO_SECONDS: Final = 15.0
_REPLACED: Final = "ErrorInterceptor"
"""Name in the module of servers of the interceptor that `RecordingInterceptor` replaces."""

_CALLS: Final = 20
"""Maximum number of recorded calls of a method."""

_MESSAGES: Final = 20
"""Maximum number of recorded messages of a call."""

_ALIKE: Final = 3
"""Number of recorded calls or messages of a method in which the same fields are set."""

_V1: Final = "hopyard.v1."
_RUN: Final = common_pb2.RunRef(experiment="experiment", job="1", attempt=1)
_HYPERPARAMETERS: Final = hyperparameters_to_proto({"x": 0.5})

WRITTEN: Final[Mapping[str, Sequence[Sequence[Message]]]] = {
    f"{_V1}ApplicationService.SaveState": [
        [
            application_pb2.SaveStateRequest(position=3, data=b"state"),
            application_pb2.SaveStateRequest(data=b"more"),
        ],
        [application_pb2.SaveStateRequest(position=3, path="state")],
    ],
    f"{_V1}ApplicationService.LoadState": [
        [application_pb2.LoadStateRequest()],
        [application_pb2.LoadStateRequest(folder="state")],
    ],
    f"{_V1}HyperparameterGeneratorService.ReportPerformance": [
        [
            hpgen_pb2.ReportPerformanceRequest(
                experiment=_RUN.experiment, job=_RUN.job, position=3, metrics={"score": 0.5}
            )
        ]
    ],
    f"{_V1}HyperparameterGeneratorService.ReportFinalPerformance": [
        [
            hpgen_pb2.ReportFinalPerformanceRequest(
                experiment=_RUN.experiment,
                job=_RUN.job,
                position=3,
                metrics={"score": 0.5},
                outcome=common_pb2.JOB_STATE_COMPLETED,
                hyperparameters=_HYPERPARAMETERS,
            )
        ]
    ],
    f"{_V1}NodeAgentService.JoinGang": [[node_agent_pb2.JoinGangRequest(run=_RUN)]],
}
"""Requests that the scenario does not cause: programs in Python need no state of the agent, and only some generators get reports."""


class Recorder:
    """Keeps some calls of each method: at most `_CALLS`, and at most `_ALIKE` that look alike because the same fields are set.

    A call that looks like no other one takes the place of one that does. Of a stream, at most `_ALIKE` messages that look alike are
    kept. A stream with more than `_MESSAGES` such messages is kept as several calls: each begins with its first message, which says
    who calls.

    Attributes:
        calls: The calls by the full name of the method.
    """

    def __init__(self) -> None:
        self.calls: dict[str, list[list[bytes]]] = {}
        self._kinds: dict[str, list[frozenset[str] | None]] = {}
        self._seen: set[tuple[str, bytes]] = set()

    def add(self, method: str, request: Message) -> None:
        """Record a call with one request."""
        data = request.SerializeToString(deterministic=True)
        if (method, data) not in self._seen:
            self._seen.add((method, data))
            self._keep(method, _kind(request), [data])

    def begin(self, method: str) -> Callable[[Message], None]:
        """Record a call with a stream of requests, and return a function that records one of them."""
        alike: Counter[frozenset[str]] = Counter()
        first: list[bytes] = []
        call: list[bytes] = []

        def add(request: Message) -> None:
            nonlocal call
            kind = _kind(request)
            alike[kind] += 1
            if alike[kind] > _ALIKE:
                return
            data = request.SerializeToString(deterministic=True)
            if not call or len(call) == _MESSAGES:
                first[:] = first or [data]
                call = [*(first if call else ()), data]
                self._keep(method, None, call)
            else:
                call.append(data)

        return add

    def _keep(self, method: str, kind: frozenset[str] | None, call: list[bytes]) -> None:
        calls, kinds = self.calls.setdefault(method, []), self._kinds.setdefault(method, [])
        if len(calls) < _CALLS and (kind is None or kinds.count(kind) < _ALIKE):
            calls.append(call)
            kinds.append(kind)
        elif kind not in kinds and (common := [number for number, one in enumerate(kinds) if kinds.count(one) > 1]):
            calls[common[-1]], kinds[common[-1]] = call, kind


def _kind(message: Message) -> frozenset[str]:
    """Return the paths of all fields that are set in a message, with the texts of fields named `kind` and `spec`."""
    return frozenset(_paths(message))


def _paths(message: Message, prefix: str = "") -> list[str]:
    found = []
    for field, value in message.ListFields():
        path = f"{prefix}.{field.name}"
        found.append(f"{path}={value}" if field.name in ("kind", "spec") else path)
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for one in [value] if isinstance(value, Message) else value:
                found += _paths(one, path)
    return found


class _Requests:
    """The requests of a stream, each of which is passed to `add` when it is read."""

    def __init__(self, requests: Any, add: Callable[[Message], None]) -> None:
        # Like the interceptor, it creates the iterator of gRPC only when it is used.
        self._requests = requests
        self._iterator: AsyncIterator[Any] | None = None
        self._add = add

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._iterator is None:
            self._iterator = aiter(self._requests)
        request = await anext(self._iterator)
        self._add(request)
        return request


class RecordingInterceptor(ErrorInterceptor):
    """The interceptor of a server that also records the requests of all accepted calls.

    Args:
        recorder: Receives the requests.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of `ErrorInterceptor`, which records its requests; None if the server has no such method."""
        handler = await super().intercept_service(continuation, handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method).removeprefix("/").replace("/", ".")
        streaming, responding = bool(handler.request_streaming), bool(handler.response_streaming)
        behaviour: Any
        make: Any
        match streaming, responding:
            case False, False:
                behaviour, make = handler.unary_unary, grpc.unary_unary_rpc_method_handler
            case False, True:
                behaviour, make = handler.unary_stream, grpc.unary_stream_rpc_method_handler
            case True, False:
                behaviour, make = handler.stream_unary, grpc.stream_unary_rpc_method_handler
            case _:
                behaviour, make = handler.stream_stream, grpc.stream_stream_rpc_method_handler

        async def handle(request: Any, context: Any) -> Any:
            if streaming:
                return await behaviour(_Requests(request, self._recorder.begin(method)), context)
            self._recorder.add(method, request)
            return await behaviour(request, context)

        return make(
            handle,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


class _Cluster:
    """The services of a cluster in this process, and a client.

    Args:
        folder: An empty folder.
        appstat: The service that stores everything.
        scheduler: The scheduler.
        agent: The agent of the node "n", which has two slots.
        client: A client of the scheduler.
    """

    def __init__(
        self, folder: Path, appstat: AppStatService, scheduler: SchedulerService, agent: NodeAgent, client: AsyncClient
    ) -> None:
        self.folder = folder
        self.appstat = appstat
        self.scheduler = scheduler
        self.agent = agent
        self.client = client

    def channel(self, kind: CallerKind, address: str) -> Channel:
        """Return a channel to a service, as a caller of a kind."""
        return channel(address, token=partial(find_token, kind, address))

    def connection(self) -> Connection:
        """Return the connection of a client to the scheduler, which has the stubs."""
        return Connection(self.scheduler.address, timeout=_SCENARIO_SECONDS, patience=_SCENARIO_SECONDS)


@asynccontextmanager
async def _cluster(folder: Path) -> AsyncIterator[_Cluster]:
    for name in ("appstat", "scheduler"):
        (folder / name).mkdir(mode=0o700)
    appstat, hpgen = AppStatService(data=folder / "appstat"), HpgenService()
    scheduler = SchedulerService(
        appstat=await appstat.start(),
        hpgen=await hpgen.start(),
        data=folder / "scheduler",
        heartbeat_seconds=0.5,
        data_seconds=1.0,
    )
    slots = (SlotSettings(id="n/0"), SlotSettings(id="n/1"))
    address = await scheduler.start()
    agent = NodeAgent(AgentSettings(node="n", scheduler=address, data=folder / "agent", slots=slots))
    await agent.start()
    try:
        async with AsyncClient(server=address) as client:
            while not await client.nodes():  # noqa: ASYNC110 - the agent joins by itself
                await asyncio.sleep(0.05)
            yield _Cluster(folder, appstat, scheduler, agent, client)
        await agent.leave(3.0)
    finally:
        await agent.stop()
        await scheduler.stop(1)
        await hpgen.stop(1)
        await appstat.stop(1)


@contextmanager
def _recorded_by(recorder: Recorder) -> Iterator[None]:
    """Within the context, let servers that are created record their requests."""
    setattr(server, _REPLACED, partial(RecordingInterceptor, recorder))
    try:
        yield
    finally:
        setattr(server, _REPLACED, ErrorInterceptor)


async def _limited(part: Awaitable[None], seconds: float = _SCENARIO_SECONDS) -> None:
    async with asyncio.timeout(seconds):
        await part


async def record(folder: Path) -> tuple[Recordings, Mapping[str, str]]:
    """Run the scenario in an empty folder, and return the recorded and the written calls, and the problems.

    It takes up to about 20 seconds.

    Returns:
        The calls, and, by the name of a part of the scenario, why it did not come to its end: what it has recorded until then is
        among the calls.
    """
    recorder = Recorder()
    with _recorded_by(recorder):
        async with _cluster(folder) as cluster:
            parts = (_life, _jobs, _study, _failure, _policy, _data, _blobs, _queries)
            outcomes = await asyncio.gather(*(_limited(part(cluster)) for part in parts), return_exceptions=True)
            outcomes += await asyncio.gather(_limited(_upkeep(cluster), 5.0), return_exceptions=True)
    calls: dict[str, Sequence[Sequence[bytes]]] = {
        name: [call for call in made if call] for name, made in sorted(recorder.calls.items()) if any(made)
    }
    for name, written in WRITTEN.items():
        calls.setdefault(name, [[message.SerializeToString() for message in call] for call in written])
    problems = {
        part.__name__.removeprefix("_"): f"{type(outcome).__name__}: {outcome}"
        for part, outcome in zip((*parts, _upkeep), outcomes, strict=True)
        if isinstance(outcome, BaseException)
    }
    return calls, problems


def _paced(jobs: int, iterations: int, **changes: Any) -> Mapping[str, Any]:
    """Return an experiment whose jobs report five times a second, also if a mutated request makes them long."""
    return noop_spec(
        jobs, iterations, **{"trainer": "train.py:Paced", "snapshot": {"every": 1, "keep_best": 1}} | changes
    )


async def _attempt(call: Awaitable[Any]) -> Any:
    """Return the result of a call; None if it is refused, which is fine: the service has received a valid request."""
    try:
        return await call
    except HopyardError:
        return None


async def _life(cluster: _Cluster) -> None:
    """An experiment is watched, paused, resumed, changed, stopped, extended, exported, imported and deleted."""
    client = cluster.client
    one = await client.create(_paced(2, 4, name="life"), NOOP)

    async def watch() -> None:
        async for _ in client.watch(one):
            pass

    watching = asyncio.create_task(watch())
    async with cluster.channel(CallerKind.USER, cluster.appstat.address) as opened:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        statistics = stub.WatchStatistics(appstat_pb2.WatchStatisticsRequest(experiment=one.id, replay=True))
        await anext(aiter(statistics))
        statistics.cancel()
    await client.update(one, weight=2.0, slots=2, concurrency=2, target=2.0)
    await client.update(one, clear=["target", "slots"])
    await client.pause(one)
    await client.wait(one, until={ExperimentState.PAUSED})
    await client.resume(one)
    await client.wait(one)
    await client.extend(one, jobs=1, max_iterations=5)
    (first, *_) = await client.jobs(one)
    async for _ in client.logs(one, first.id):
        break
    await client.results(one, reports=True)
    await client.curve(one, first.id)
    await client.wait(one)
    await client.best(one)
    await client.download(one, to=cluster.folder / "download")
    exported = await client.export_experiment(one, cluster.folder / "exported")
    await client.import_experiment(exported.file, "copy")
    await client.stop("copy")
    await client.delete(["copy"], dry_run=True)
    await client.delete(["copy"])
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def _jobs(cluster: _Cluster) -> None:
    """Single jobs and slots are handled by people and programs."""
    client, connection = cluster.client, cluster.connection()
    one = await client.create(_paced(3, 1000, name="jobs"), NOOP)
    while not (running := await client.jobs(one, JobState.RUNNING)) or not await client.statistics(one):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    job = running[0].id
    stub, slots = connection.jobs, connection.resources
    await stub.LabelJob(job_manager_pb2.LabelJobRequest(experiment=one.id, job=job, priority=2.5))
    await client.pause_job(one, job)
    while (await client.job(one, job)).state is not JobState.HELD:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    snapshots = (await client.job(one, job)).snapshots
    address = cluster.agent.address
    for unpacked in (False, True):
        ticket = await connection.ticket(address, "FetchSnapshot", snapshots[-1].sha256)
        request = node_agent_pb2.FetchSnapshotRequest(sha256=snapshots[-1].sha256, unpacked=unpacked)
        fetched = connection.node(address).FetchSnapshot(request, metadata=ticket)
        with suppress(HopyardError):
            async for _ in fetched:
                pass
    await client.resume_job(one, job)
    ticket = await connection.ticket(address, "GetStatus", "")
    await connection.node(address).GetStatus(node_agent_pb2.GetStatusRequest(), metadata=ticket)
    await _attempt(stub.SuspendJob(job_manager_pb2.SuspendJobRequest(experiment=one.id, job=job)))
    reserve = resource_manager_pb2.ReserveIdleMachineRequest(experiment=one.id, request_id="reserve")
    reserved = await _attempt(slots.ReserveIdleMachine(reserve))
    slot = reserved.slot if reserved is not None else "n/0"
    idle = await _attempt(stub.GetIdleJob(job_manager_pb2.GetIdleJobRequest(experiment=one.id)))
    name = idle.job.id if idle is not None and idle.job.id else job
    await _attempt(
        stub.StartJob(job_manager_pb2.StartJobRequest(experiment=one.id, job=name, slots=[slot], until=1000))
    )
    await _attempt(stub.ResumeJob(job_manager_pb2.ResumeJobRequest(experiment=one.id, job=job, slots=[slot])))
    await _attempt(slots.ReleaseMachine(resource_manager_pb2.ReleaseMachineRequest(slot=slot)))
    await client.stop_job(one, job)
    await client.stop(one)
    await client.wait(one)
    await client.delete([one], force=True)
    await connection.close()


async def _study(cluster: _Cluster) -> None:
    """Clients request configurations of a study, and read its search plan."""
    client = cluster.client
    one = await client.create(
        _paced(0, 9, name="study", policy="stage_tree", stop={"jobs": 0, "max_iterations": 9, "idle": 60}), NOOP
    )
    await client.request_all(one, [({"x": 0.25}, 3), ({"x": 0.5}, 5)])
    await client.request(one, {"x": 0.25}, 6, request_id="again")
    await client.keep_experiment(one)
    while not await client.jobs(one, JobState.COMPLETED):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    async with cluster.channel(CallerKind.USER, cluster.appstat.address) as opened:
        plans: appstat_pb2_grpc.SearchPlanServiceAsyncStub = appstat_pb2_grpc.SearchPlanServiceStub(opened)
        root = await _root(cluster, one.id)
        while not (found := await plans.ListPlanNodes(appstat_pb2.ListPlanNodesRequest(root=root, page_size=5))).nodes:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        for node in found.nodes[:2]:
            await plans.ListPlanNodes(
                appstat_pb2.ListPlanNodesRequest(root=root, page_size=1, page_token=found.next_page_token)
            )
            await plans.GetPlanNode(appstat_pb2.GetPlanNodeRequest(key=node.key, page_size=10))
    await client.close_experiment(one)


async def _root(cluster: _Cluster, experiment: str) -> str:
    """Return the root of an experiment's search plan, as its journal records it."""
    async with cluster.channel(CallerKind.USER, cluster.appstat.address) as opened:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        async for response in stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=experiment, from_position=1)):
            event = event_of(stored(response.records[0]))
            assert isinstance(event, StreamCreated)
            return event.settings.plan
    raise AssertionError(f"{experiment} has no journal")


async def _failure(cluster: _Cluster) -> None:
    """A job fails and is retried."""
    stop = {"jobs": 1, "max_iterations": 2, "max_failures": 0}
    spec = _paced(1, 2, name="failure", trainer="train.py:Missing", stop=stop)
    one = await cluster.client.create(spec, NOOP)
    while not await cluster.client.jobs(one, JobState.FAILED):  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    await cluster.client.retry(one)


async def _policy(cluster: _Cluster) -> None:
    """A policy in a process of its own decides; the generator gets the results of jobs."""
    command = ["hopyard", "policy", "serve", "hopyard_policies.default:DefaultPolicy"]
    spec = _paced(6, 3, name="policy", policy={"command": command}, generator={"name": "tpe", "n_startup_trials": 1})
    one = await cluster.client.create(spec, NOOP)
    await cluster.client.wait(one)


async def _data(cluster: _Cluster) -> None:
    """A data set is registered, listed and dropped."""
    client, connection = cluster.client, cluster.connection()
    file = cluster.folder / "numbers.csv"
    file.write_text("1,2,3\n")
    partitions = [
        DataPartition(name, examples=1, replicas=(DataReplica("n", str(file)),)) for name in ("train/0", "eval/0")
    ]
    await client.register_data(DATA_SET, partitions)
    await client.data_sets()
    await client.data_set(DATA_SET)
    await client.drop_data(DATA_SET)
    await connection.close()


async def _blobs(cluster: _Cluster) -> None:
    """A service stores, reads and deletes blobs."""
    pieces = (b"first piece", b"second piece")
    sha256 = hashlib.sha256(b"".join(pieces)).hexdigest()
    async with cluster.channel(CallerKind.SERVICE, cluster.appstat.address) as opened:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)

        async def requests() -> AsyncIterator[appstat_pb2.PutBlobRequest]:
            yield appstat_pb2.PutBlobRequest(sha256=sha256, data=pieces[0], owner="scenario")
            yield appstat_pb2.PutBlobRequest(data=pieces[1])

        await stub.PutBlob(requests())
        await stub.HasBlobs(appstat_pb2.HasBlobsRequest(sha256=[sha256], owner="scenario"))
        await stub.HasBlobs(appstat_pb2.HasBlobsRequest(sha256=[sha256], owner="scenario", owned=True))
        async for _ in stub.GetBlob(appstat_pb2.GetBlobRequest(sha256=sha256)):
            pass
        await stub.ReleaseBlobs(appstat_pb2.ReleaseBlobsRequest(owner="scenario", sha256=[sha256]))
        await stub.DeleteBlobs(appstat_pb2.DeleteBlobsRequest(sha256=[sha256], owner="scenario", unwanted_seconds=600))
        await stub.SweepBlobs(appstat_pb2.SweepBlobsRequest(dry_run=True, older_than_seconds=600))
        await stub.ListBlobs(appstat_pb2.ListBlobsRequest(page_size=2))


async def _queries(cluster: _Cluster) -> None:
    """Programs read the tables and the journal page by page, ask for the health of a service, and for its methods."""
    one = await cluster.client.create(_paced(2, 3, name="queries"), NOOP)
    await cluster.client.wait(one)
    running = experiment_pb2.EXPERIMENT_STATE_RUNNING
    async with cluster.channel(CallerKind.USER, cluster.appstat.address) as opened:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        token = (await stub.ListStreams(appstat_pb2.ListStreamsRequest(page_size=1))).next_page_token
        await stub.ListStreams(appstat_pb2.ListStreamsRequest(page_size=1, page_token=token))
        async for _ in stub.ReadJournal(appstat_pb2.ReadJournalRequest(stream=one.id, from_position=2)):
            pass
        query = appstat_pb2.QueryStatisticsRequest(experiment=one.id, job="1", page_size=1)
        query.page_token = (await stub.QueryStatistics(query)).next_page_token
        await stub.QueryStatistics(query)
        await stub.QueryExperiments(appstat_pb2.QueryExperimentsRequest(state=running, page_size=1))
        jobs = appstat_pb2.QueryJobsRequest(experiment=one.id, page_size=1)
        jobs.page_token = (await stub.QueryJobs(jobs)).next_page_token
        await stub.QueryJobs(jobs)
        await stub.QueryScaling(appstat_pb2.QueryScalingRequest(training="training", page_size=10))
        contents = appstat_pb2.StreamContents(stream=one.id, experiments=[one.id], bundles=[one.bundle])
        await stub.QueryStorage(appstat_pb2.QueryStorageRequest(streams=[contents]))
    async with cluster.channel(CallerKind.USER, cluster.scheduler.address) as opened:
        health = health_pb2_grpc.HealthStub(opened)
        for service in ("", f"{_V1}ExperimentService"):
            await health.Check(health_pb2.HealthCheckRequest(service=service))
            watch = health.Watch(health_pb2.HealthCheckRequest(service=service))
            await anext(aiter(watch))
            watch.cancel()

        async def requests() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
            yield reflection_pb2.ServerReflectionRequest(list_services="")
            yield reflection_pb2.ServerReflectionRequest(file_containing_symbol=f"{_V1}JobManagerService")
            yield reflection_pb2.ServerReflectionRequest(file_by_filename="hopyard/v1/common.proto")

        reflection = reflection_pb2_grpc.ServerReflectionStub(opened)
        async for _ in reflection.ServerReflectionInfo(requests()):
            pass


async def _upkeep(cluster: _Cluster) -> None:
    """People drain the node and collect garbage. This comes last, because a drained node trains nothing."""
    client, connection = cluster.client, cluster.connection()
    await client.drain_node("n", deadline=30.0)
    await client.undrain_node("n")
    await client.drain_node("n")
    await client.undrain_node("n")
    await _attempt(client.forget_node("n"))
    await _attempt(client.forget_node("n", force=True))
    await connection.resources.ListSlots(resource_manager_pb2.ListSlotsRequest(page_size=1))
    await client.cluster()
    await client.collect_garbage(dry_run=True, older_than=0.0)
    await client.collect_garbage(older_than=0.0, for_others=True)
    await client.collect_garbage(foreign=True, idle=["0" * 64])
    await connection.close()
