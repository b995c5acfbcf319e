"""The read-only half of the asynchronous client: finds the cluster, and queries experiments, jobs, statistics, logs and nodes."""

from __future__ import annotations

import asyncio
import math
import random
import shlex
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from hopyard._net.auth.credentials import user_token
from hopyard._net.rpc import DEFAULT_TIMEOUT_SECONDS, Backoff
from hopyard._net.rpc.enums import JOB_STATES
from hopyard.client.address import DEFAULT_DATA, find_server
from hopyard.client.curve_lineage import ancestor
from hopyard.client.datasets import DataSet
from hopyard.client.transfer.logs import LogReader
from hopyard.client.types import (
    Change,
    ClusterAddresses,
    Experiment,
    ExperimentState,
    Job,
    JobState,
    LogChunk,
    Node,
    Point,
    Statistic,
)
from hopyard.client.wire import converters
from hopyard.client.wire.connection import Connection
from hopyard.errors import Conflict, DataLoss, Exhausted, InvalidInput, NotFound, TimedOut, Unavailable
from hopyard.policy.vocabulary.reasons import NEEDS_A_PERSON
from hopyard.v1 import appstat_pb2, data_pb2, experiment_pb2, job_manager_pb2, resource_manager_pb2

if TYPE_CHECKING:
    from hopyard.client.local_cluster.embedded import EmbeddedCluster
    from hopyard.results import Results
    from hopyard.traces import Trace
    from hopyard.v1.appstat_pb2_grpc import AppStatServiceAsyncStub

T = TypeVar("T")

PATIENCE_SECONDS: Final = 30.0
"""Default of `patience`: seconds for which a call is retried while the cluster is not reachable."""

_PAGE: Final = 1000
_WATCH_SECONDS: Final = 3600.0
_LAST_WORDS_SECONDS: Final = 2.0
_SILENCE_SECONDS: Final = 90.0
"""Time without a message after which a watch is opened again. The scheduler repeats the state of an experiment every 20 seconds."""


ENDED: Final = frozenset(state for state in ExperimentState if state.ended)


class ClientQueries:
    """The methods of `AsyncClient` that change nothing in the cluster. `AsyncClient` is the class to use; it inherits them.

    The object connects to the cluster with the first call. The docstring of `AsyncClient` describes the constructor's arguments.
    """

    def __init__(
        self,
        server: str | None = None,
        data: str | Path | None = None,
        *,
        token: str | None = None,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        if server is not None and data is not None:
            raise InvalidInput("give server or data, not both")
        self._server = server
        self._data = data
        self._token = None if token is None else user_token(token)
        self._timeout = timeout
        self._patience = patience
        self._cluster: EmbeddedCluster | None = None
        self._died: asyncio.Task[None] | None = None
        """Ends with an error when a process of `_cluster` has exited."""
        self._stored: Callable[[], Connection] | None = None
        self._opening = asyncio.Lock()
        self._opened: Connection | None = None

    @classmethod
    def local(
        cls,
        data: str | Path = DEFAULT_DATA,
        *,
        slots: int | None = None,
        gpus: str | Sequence[int | str] | None = None,
        gpus_per_slot: int | None = None,
        slots_per_gpu: int | None = None,
    ) -> Self:
        """Create a client with its own cluster, whose processes run on this computer and whose state is in the directory `data`.

        The cluster starts with the first call (or when the context is entered) and stops when the client is closed.
        Unfinished experiments continue when a cluster is started in the directory again. In the main thread, this call also makes
        SIGHUP (a closed terminal) raise SystemExit, unless the program ignores or handles it: the client is then closed as at Ctrl-C.

        If a process of the cluster exits, all calls raise `Unavailable` with the last lines of its log.

        Args:
            data: The data directory. It is created if it is missing.
            slots: Number of slots, and so of jobs that can train at the same time; None: one per GPU, else one.
            gpus: The GPUs to train on: "all", "none", or their indices and UUIDs, as text with commas between or as a sequence;
                None: those that CUDA_VISIBLE_DEVICES shows.
            gpus_per_slot: GPUs of each slot; None: one, or what `slots` leaves to each.
            slots_per_gpu: Number of slots that share each GPU and its memory, which is not limited; None: one.

        Raises:
            InvalidInput: A number is not allowed. A contradiction with this computer is raised when the cluster starts.
        """
        from hopyard._runtime.gpus import GpuOptions
        from hopyard._runtime.gpus.selection import NONE
        from hopyard.client.local_cluster.embedded import EmbeddedCluster
        from hopyard.client.local_cluster.hangup import exit_on_hangup

        for name, number in (("gpus_per_slot", gpus_per_slot), ("slots_per_gpu", slots_per_gpu)):
            if number is not None and number < 1:
                raise InvalidInput(f"{name}: found {number}, allowed is 1 or more")
        words = gpus if gpus is None or isinstance(gpus, str) else ",".join(map(str, gpus)) or NONE
        options = GpuOptions(words, gpus_per_slot, slots_per_gpu)
        client = cls()
        client._cluster = EmbeddedCluster(data, slots=slots, gpus=options, announce=True, purpose="Client.local")
        exit_on_hangup()
        return client

    def continuation(self, experiment: str) -> str:
        """Return how a user continues or watches the experiment with the id `experiment` after an interrupted wait."""
        if self._cluster is not None:
            folder = self._cluster.data
            data = "" if folder == Path(DEFAULT_DATA).absolute() else f" --data {shlex.quote(str(folder))}"
            return f"its cluster ends with this program; continue with: hopyard resume {experiment}{data}"
        where = f" --data {shlex.quote(str(self._data))}" if self._data is not None else ""
        where = f" --server {self._server}" if self._server is not None else where
        return f"it continues; watch it with: hopyard jobs {experiment} --watch{where}"

    @classmethod
    def stored(cls, data: str | Path = DEFAULT_DATA, *, options: str = "") -> Self:
        """Create a client that reads the directory `data` of a cluster that does not run, without starting it.

        Nothing is changed. Experiments that ran when their cluster ended are INTERRUPTED. Calls that need a cluster, such as `watch`
        and all that change something, raise `Conflict`. The directory is opened when the client is first used, which raises `Conflict`
        if the data are of another version of Hopyard, `DataLoss` if the database is damaged, and `Unavailable` if it cannot be opened.

        Args:
            data: The data directory. If a cluster starts in it meanwhile, the client still reads committed data.
            options: The options with which the command line finds the directory, with a leading blank, for the commands in messages;
                empty: none needed.
        """

        def opened() -> Connection:
            from hopyard.client.stored.connection import StoredConnection

            return StoredConnection(Path(data), options)

        client = cls()
        client._stored = opened
        return client

    @property
    def live(self) -> bool:
        """Whether the client queries a cluster; False: it reads the data of one that does not run (see `stored`)."""
        return self._stored is None

    async def __aenter__(self) -> Self:
        """Connect to the cluster, or start the one of a client that `local` created, and return the client.

        Raises:
            Conflict: Another cluster holds the lock of the directory of `local`.
            Unavailable: No cluster serves the data directory, or a process of the cluster of `local` exited.
            TimedOut: A process of the cluster of `local` did not serve requests in time.
        """
        await self._connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Close the connections, and stop the cluster of a client that `local` created. Safe to call twice."""
        opened, self._opened = self._opened, None
        died, self._died = self._died, None
        if died is not None:
            died.cancel()
            await asyncio.gather(died, return_exceptions=True)
        if opened is not None:
            await opened.close()
        if self._cluster is not None:
            await self._cluster.stop()

    async def get(self, experiment: str | Experiment) -> Experiment:
        """Return the current state of an experiment.

        Raises:
            NotFound: There is no experiment with this id.
        """
        connection = await self._connection()
        request = experiment_pb2.GetExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.GetExperiment(request))
        return converters.experiment(answer.experiment)

    async def experiments(self, state: ExperimentState | None = None) -> list[Experiment]:
        """Return all experiments of the cluster (`state` None) or those in one state, newest first."""
        connection = await self._connection()
        request = experiment_pb2.ListExperimentsRequest(page_size=_PAGE)
        if state is not None and state is not ExperimentState.INTERRUPTED:
            request.state = converters.EXPERIMENT_STATES.to_proto(state)
        found: list[Experiment] = []
        while True:
            answer = await connection.call(lambda: connection.experiments.ListExperiments(request))
            found.extend(map(converters.experiment, answer.experiments))
            if not answer.next_page_token:
                return [one for one in found if state in (None, one.state)]
            request.page_token = answer.next_page_token

    async def data_sets(self) -> list[DataSet]:
        """Return all data sets in the catalog of the cluster, ordered by name."""
        connection = await self._connection()
        request = data_pb2.ListDataRequest(page_size=_PAGE)
        found: list[DataSet] = []
        while True:
            answer = await connection.call(lambda: connection.data.ListData(request))
            found.extend(map(converters.data_set, answer.data))
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def data_set(self, name: str) -> DataSet:
        """Return a data set with the current nodes of its partitions.

        Raises:
            NotFound: There is no data set with this name.
        """
        connection = await self._connection()
        request = data_pb2.GetDataRequest(name=name)
        answer = await connection.call(lambda: connection.data.GetData(request))
        return converters.data_set(answer.data)

    async def watch(self, experiment: str | Experiment) -> AsyncGenerator[Change]:
        """Yield the current state of the experiment and its jobs, then every change until the experiment ends.

        A lost or silent connection is reopened, and the current state is then yielded again; so is a watch that the scheduler ended
        because this reader was far too slow. A slow reader gets the newest state of each job and may miss intermediate states. The
        state of the experiment is also repeated while nothing changes.

        Raises:
            NotFound: There is no such experiment.
            Unavailable: The cluster was not reachable for longer than the client's `patience`.
        """
        connection = await self._connection()
        request = experiment_pb2.WatchExperimentRequest(experiment=id_of(experiment))
        backoff, rng, failures, lost_at, ended = Backoff(), random.Random(), 0, 0.0, False
        while not ended:
            call = connection.experiments.WatchExperiment(request, timeout=_WATCH_SECONDS)
            messages = call.__aiter__()
            try:
                while True:
                    # The server closes the stream after the experiment has ended; do not wait for long if the close is lost.
                    async with asyncio.timeout(_LAST_WORDS_SECONDS if ended else _SILENCE_SECONDS):
                        message = await self._unless_died(anext(messages))
                    failures = 0
                    change = converters.change(message)
                    if isinstance(change, Experiment):
                        ended = change.state.ended
                    if change is not None:
                        yield change
            except TimeoutError:
                continue  # the deadline of the stream, or silence: the stream is reopened; or its close was lost
            except StopAsyncIteration:
                failures, lost_at = failures + 1, time.monotonic()  # the server closed the stream
            except Exhausted:
                failures += 1  # too many reports waited for this reader
            except Unavailable as error:
                self._check_processes()
                failures += 1
                lost_at = lost_at if failures > 1 else time.monotonic()
                if not ended and time.monotonic() - lost_at > self._patience:
                    raise connection.unanswered(error) from error
            finally:
                call.cancel()
            if not ended:
                await asyncio.sleep(backoff.wait(failures, rng))

    async def wait(
        self,
        experiment: str | Experiment,
        timeout: float | None = None,  # noqa: ASYNC109 - the same signature as in the synchronous client
        *,
        until: Collection[ExperimentState] = ENDED,
        heard: Callable[[Change], object] | None = None,
    ) -> Experiment:
        """Wait until the experiment has ended or is in one of the states `until`, and return it.

        Args:
            experiment: The experiment or its id.
            timeout: Maximum time to wait in seconds; None: no limit.
            until: States to wait for. An experiment that ends in another state is returned as well.
            heard: Called with each change that `watch` yields, for example to show the progress; None: nothing is called.

        Raises:
            NotFound: There is no such experiment.
            Conflict: The experiment is paused until a person has examined it: no report contains its metric (`update` changes the
                metric), its first jobs failed from the same cause, its generator failed, or its code is lost.
            TimedOut: The timeout has passed.
        """
        newest: Experiment | None = None
        try:
            async with asyncio.timeout(timeout):
                async with aclosing(self.watch(experiment)) as changes:
                    async for change in changes:
                        if heard is not None:
                            heard(change)
                        if isinstance(change, Experiment):
                            newest = change
                            if newest.state in until or newest.state.ended:
                                return newest
                            if newest.reason_code in NEEDS_A_PERSON and newest.state is ExperimentState.PAUSED:
                                raise Conflict(f"experiment {newest.id} is PAUSED: {newest.reason}")
        except TimeoutError as error:
            state = newest.state.value if newest is not None else "not known"
            raise TimedOut(f"experiment {id_of(experiment)}: still {state} after {timeout:g} s") from error
        return await self.get(experiment)

    async def jobs(self, experiment: str | Experiment, state: JobState | None = None) -> list[Job]:
        """Return all jobs of an experiment (`state` None) or those in one state, in order of creation.

        Raises:
            NotFound: There is no such experiment.
        """
        connection = await self._connection()
        request = job_manager_pb2.ListJobsRequest(experiment=id_of(experiment), page_size=_PAGE)
        if state is not None:
            request.state = JOB_STATES.to_proto(state)
        found: list[Job] = []
        while True:
            answer = await connection.call(lambda: connection.jobs.ListJobs(request))
            found.extend(map(converters.job, answer.jobs))
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def job(self, experiment: str | Experiment, job: str) -> Job:
        """Return the current state of a job.

        Raises:
            NotFound: The experiment has no job with this id.
        """
        connection = await self._connection()
        request = job_manager_pb2.GetJobRequest(experiment=id_of(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.GetJob(request))
        return converters.job(answer.job)

    async def best(self, experiment: str | Experiment) -> Job | None:
        """Return the job with the best value of the metric so far, or None before the first report with a finite value.

        Raises:
            NotFound: There is no such experiment.
        """
        present = await self.get(experiment)
        return await self.job(present.id, present.best_job) if present.best_job is not None else None

    async def statistics(self, experiment: str | Experiment, job: str | None = None) -> list[Statistic]:
        """Return the reports of an experiment, ordered by job and position. Empty if the experiment or the job is unknown.

        Repeated reports, of training that was repeated after a loss, are not included.

        Args:
            experiment: The experiment or its id.
            job: Id of the job whose reports are returned; None: those of all jobs.
        """
        return [one async for page in self._statistics(id_of(experiment), job or "") for one in page]

    async def _statistics(self, experiment: str, job: str = "") -> AsyncGenerator[list[Statistic]]:
        connection = await self._connection()
        request = appstat_pb2.QueryStatisticsRequest(experiment=experiment, job=job, page_size=10_000)
        while True:
            answer = await connection.with_appstat(lambda stub: stub.QueryStatistics(request))
            yield [converters.statistic(one) for one in answer.statistics]
            if not answer.next_page_token:
                return
            request.page_token = answer.next_page_token

    async def results(self, experiment: str | Experiment, *, reports: bool = False) -> Results:
        """Return the results of an experiment as a table, whose `rows` are plain values. Its `frame()` is a pandas DataFrame.

        Args:
            experiment: The experiment or its id.
            reports: Whether the table has one row per report. Otherwise it has one row per job, in order of creation.

        Raises:
            NotFound: There is no such experiment.
        """
        from hopyard.results import job_results, report_results

        present = await self.get(experiment)
        if reports:
            return report_results(present, await self.statistics(present))
        return job_results(present, await self.jobs(present))

    async def traces(self, experiment: str | Experiment) -> list[Trace]:
        """Return the traces of an experiment's jobs, in order of job creation, for `hopyard.traces.write_traces`.

        A trace has the hyperparameters of a job, its learning curve, and the training seconds of each report. A position that
        was trained again after a return to an earlier snapshot occurs once. Jobs without reports are omitted.

        Raises:
            NotFound: There is no such experiment.
        """
        from hopyard.traces.recorder import Recorder

        present = await self.get(experiment)
        recorder = Recorder()
        async for page in self._statistics(present.id):
            recorder.add(page)
        return recorder.traces(present, await self.jobs(present))

    async def curve(self, experiment: str | Experiment, job: str, metric: str | None = None) -> list[Point]:
        """Return the learning curve of a job, ordered by position. That of a forked job begins with its ancestor's, up to the fork.

        The list is empty if the metric was never reported. If a job was forked from a job of another experiment of its group, the
        curve begins at the fork. Query that experiment for the earlier part.

        Args:
            experiment: The experiment or its id.
            job: Id of the job.
            metric: Name of a metric; None: the metric that the experiment optimizes.

        Raises:
            NotFound: There is no such experiment or job.
        """
        present = await self.get(experiment)
        found: list[Point] = []
        passed: set[str] = set()
        upto: float = math.inf
        one: Job | None = await self.job(present.id, job)
        while one is not None:
            parent = ancestor(one, upto, passed)
            begin = one.fork_position if parent is not None else -1
            own = converters.curve(await self.statistics(present.id, one.id), metric or present.metric.name)
            found[:0] = [point for point in own if begin < point.position <= upto]
            passed.add(one.id)
            upto = min(upto, begin)
            one = await self._parent(present.id, parent)
        return found

    async def _parent(self, experiment: str, parent: str | None) -> Job | None:
        """Return the job with the id `parent`. None if `parent` is None, or if the experiment has no such job.

        The parent of a forked job may belong to another experiment of the group.
        """
        if parent is None:
            return None
        try:
            return await self.job(experiment, parent)
        except NotFound:
            return None

    async def logs(
        self, experiment: str | Experiment, job: str, *, follow: bool = False, rank: int = 0
    ) -> AsyncGenerator[LogChunk]:
        """Yield the output of a job from the nodes on which it ran, node by node.

        Args:
            experiment: The experiment or its id.
            job: Id of the job.
            follow: Whether to yield new output until the job has ended. Otherwise, and if no cluster runs, the output that exists now
                is yielded.
            rank: The rank of the job's gang whose output is read; 0 without a gang.

        Raises:
            NotFound: There is no such job. Without `follow` also: no reachable node has its output, because it has not run yet,
                or its node is not reachable.
        """
        connection = await self._connection()
        group = (await self.job(experiment, job)).group or id_of(experiment)
        reader = LogReader(connection, group, job, self.nodes, lambda: self.job(experiment, job), rank)
        async with aclosing(reader.follow() if follow and self.live else reader.written()) as chunks:
            async for chunk in chunks:
                yield chunk

    async def nodes(self) -> list[Node]:
        """Return the nodes of the cluster with their slots."""
        connection = await self._connection()
        request = resource_manager_pb2.ListNodesRequest(page_size=_PAGE)
        found: list[Node] = []
        while True:
            answer = await connection.call(lambda: connection.resources.ListNodes(request))
            found.extend(map(converters.node, answer.nodes))
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def cluster(self) -> ClusterAddresses:
        """Return the addresses and the version of the cluster's services."""
        connection = await self._connection()
        request = experiment_pb2.GetClusterRequest()
        return converters.cluster(await connection.call(lambda: connection.experiments.GetCluster(request)))

    async def _connection(self) -> Connection:
        async with self._opening:
            if self._opened is None and self._stored is not None:
                self._opened = self._stored()
            self._check_processes()
            if self._opened is None:
                if self._cluster is not None:
                    server, data = await self._cluster.start(), None
                    self._died = asyncio.create_task(self._cluster.died(), name="cluster")
                else:
                    server, data = find_server(self._server, self._data)
                self._opened = Connection(
                    server, token=self._token, data=data, timeout=self._timeout, patience=self._patience
                )
            return self._opened

    def _check_processes(self) -> None:
        """Raise the error of `_died` if a process of the client's own cluster has exited."""
        if self._died is not None and self._died.done():
            self._died.result()

    async def _unless_died(self, answer: Awaitable[T]) -> T:
        """Return the result of `answer`. If a process of the client's own cluster exits first, raise the error of `_died`."""
        if self._died is None:
            return await answer
        pending = asyncio.ensure_future(answer)
        try:
            await asyncio.wait((pending, self._died), return_when=asyncio.FIRST_COMPLETED)
            if not pending.done():
                self._check_processes()  # Nothing is raised if the client was closed.
            return await pending
        finally:
            pending.cancel()


async def appstat_of(client: ClientQueries) -> AppStatServiceAsyncStub:
    """Return the stub of AppStat in a client's cluster, or of the stored data (see `ClientQueries.stored`).

    It is for tools that read the journal and blobs.
    """
    return await (await client._connection()).appstat()


async def code_of(client: ClientQueries, experiment: Experiment) -> dict[str, str]:
    """Return the code files with which an experiment was created; empty: it has no code.

    Returns:
        The text of each path as `hopyard._runtime.bundle.code_files` returns it.

    Raises:
        NotFound: The store does not have the bundle.
        DataLoss: The received bytes do not match the hash.
    """
    from hopyard._runtime.bundle import BundleError, code_files
    from hopyard.client.transfer.blobs import fetch_stored

    if not experiment.bundle:
        return {}
    with tempfile.TemporaryDirectory(prefix="hopyard-") as scratch:
        file = Path(scratch) / "bundle"
        await fetch_stored(await client._connection(), experiment.bundle, file)
        try:
            with file.open("rb") as opened:
                return await asyncio.to_thread(code_files, opened)
        except BundleError as error:
            raise DataLoss(f"the bundle {experiment.bundle} cannot be read: {error}") from error


def id_of(experiment: str | Experiment) -> str:
    """Return the id of an experiment that is given by id or as an `Experiment`."""
    return experiment.id if isinstance(experiment, Experiment) else experiment
