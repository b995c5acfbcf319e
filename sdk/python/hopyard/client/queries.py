"""The asynchronous client's eyes: a cluster is found, its experiments, jobs and nodes are looked at, nothing is changed."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

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
from hopyard.errors import InvalidInput, NotFound, TimedOut, Unavailable
from hopyard.v1 import appstat_pb2, data_pb2, experiment_pb2, job_manager_pb2, resource_manager_pb2

if TYPE_CHECKING:
    from hopyard.client.local_cluster.embedded import EmbeddedCluster
    from hopyard.results import Results
    from hopyard.traces import Trace

PATIENCE_SECONDS: Final = 30.0
"""How long a call is tried again while the cluster is not reachable, unless the client is told otherwise."""

_PAGE: Final = 1000
_WATCH_SECONDS: Final = 3600.0
_LAST_WORDS_SECONDS: Final = 2.0

ENDED: Final = frozenset(state for state in ExperimentState if state.ended)


class ClientQueries:
    """What `AsyncClient` can do without changing anything."""

    def __init__(
        self,
        server: str | None = None,
        data: str | Path | None = None,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        if server is not None and data is not None:
            raise InvalidInput("give server or data, not both")
        self._server = server
        self._data = data
        self._timeout = timeout
        self._patience = patience
        self._cluster: EmbeddedCluster | None = None
        self._opening = asyncio.Lock()
        self._opened: Connection | None = None

    @classmethod
    def local(cls, data: str | Path = DEFAULT_DATA, *, slots: int = 1) -> Self:
        """A client with a cluster of its own in the directory `data`, on this computer.

        The cluster starts with the first call (or on entering the context), and stops when the client is closed; what
        was going on then goes on when the directory is opened again.

        Args:
            data: The directory; made where it is missing.
            slots: How many jobs train at a time.
        """
        from hopyard.client.local_cluster.embedded import EmbeddedCluster

        client = cls()
        client._cluster = EmbeddedCluster(data, slots=slots, purpose="Client.local")
        return client

    async def __aenter__(self) -> Self:
        """Find the cluster, or start it."""
        await self._connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Close the connections, and stop the client's own cluster. Safe to call twice."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()
        if self._cluster is not None:
            await self._cluster.stop()

    async def get(self, experiment: str | Experiment) -> Experiment:
        """An experiment's present state.

        Raises:
            NotFound: There is none with this id.
        """
        connection = await self._connection()
        request = experiment_pb2.GetExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.GetExperiment(request))
        return converters.experiment(answer.experiment)

    async def experiments(self, state: ExperimentState | None = None) -> list[Experiment]:
        """All experiments, newest first; with `state`, those in it."""
        connection = await self._connection()
        request = experiment_pb2.ListExperimentsRequest(page_size=_PAGE)
        if state is not None:
            request.state = converters.EXPERIMENT_STATES.to_proto(state)
        found: list[Experiment] = []
        while True:
            answer = await connection.call(lambda: connection.experiments.ListExperiments(request))
            found.extend(map(converters.experiment, answer.experiments))
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def data_sets(self) -> list[DataSet]:
        """The data sets of the partition catalog, by name."""
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
        """A data set, and where its partitions are now.

        Raises:
            NotFound: There is none of this name.
        """
        connection = await self._connection()
        request = data_pb2.GetDataRequest(name=name)
        answer = await connection.call(lambda: connection.data.GetData(request))
        return converters.data_set(answer.data)

    async def watch(self, experiment: str | Experiment) -> AsyncGenerator[Change]:
        """The present state of the experiment and its jobs, then every change, until it ends.

        When the connection is lost it is opened again, and the present state comes once more. A slow reader gets the
        newest state of each job, not every step between.

        Raises:
            NotFound: There is no such experiment.
            Unavailable: The cluster was not reachable for longer than the client's patience.
        """
        connection = await self._connection()
        request = experiment_pb2.WatchExperimentRequest(experiment=id_of(experiment))
        backoff, rng, failures, lost_at, ended = Backoff(), random.Random(), 0, 0.0, False
        while not ended:
            call = connection.experiments.WatchExperiment(request, timeout=_WATCH_SECONDS)
            messages = call.__aiter__()
            try:
                while True:
                    # Once the experiment has ended the server closes the stream; a lost goodbye must not hold us.
                    async with asyncio.timeout(_LAST_WORDS_SECONDS if ended else None):
                        message = await anext(messages)
                    failures = 0
                    change = converters.change(message)
                    if isinstance(change, Experiment):
                        ended = change.state.ended
                    if change is not None:
                        yield change
            except TimeoutError:
                continue  # after a long while, to open it anew
            except StopAsyncIteration:
                failures, lost_at = failures + 1, time.monotonic()  # closed by a server that stops, when not ended
            except Unavailable as error:
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
        timeout: float | None = None,  # noqa: ASYNC109 - the same face as the synchronous client
        *,
        until: Collection[ExperimentState] = ENDED,
    ) -> Experiment:
        """Wait until the experiment has ended, or is in one of the states `until`.

        Args:
            experiment: Which.
            timeout: Seconds to wait at most; None: as long as it takes.
            until: States to wait for; an experiment that ends in another one is answered all the same.

        Raises:
            TimedOut: It took longer.
        """
        newest: Experiment | None = None
        try:
            async with asyncio.timeout(timeout):
                async with aclosing(self.watch(experiment)) as changes:
                    async for change in changes:
                        if isinstance(change, Experiment):
                            newest = change
                            if newest.state in until or newest.state.ended:
                                return newest
        except TimeoutError as error:
            state = newest.state.value if newest is not None else "not known"
            raise TimedOut(f"experiment {id_of(experiment)}: still {state} after {timeout:g} s") from error
        return await self.get(experiment)

    async def jobs(self, experiment: str | Experiment, state: JobState | None = None) -> list[Job]:
        """An experiment's jobs in order of creation; with `state`, those in it."""
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
        """One job.

        Raises:
            NotFound: There is none with this id.
        """
        connection = await self._connection()
        request = job_manager_pb2.GetJobRequest(experiment=id_of(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.GetJob(request))
        return converters.job(answer.job)

    async def best(self, experiment: str | Experiment) -> Job | None:
        """The job with the best value of the metric so far; None before the first report."""
        present = await self.get(experiment)
        return await self.job(present.id, present.best_job) if present.best_job is not None else None

    async def statistics(self, experiment: str | Experiment, job: str | None = None) -> list[Statistic]:
        """All accepted reports, ordered by job and position; of one job, or of all."""
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
        """What it found as a table: a row a job in order of creation; with `reports`, a row a report.

        `results(...).rows` are plain values, `results(...).frame()` is a pandas DataFrame.
        """
        from hopyard.results import job_results, report_results

        present = await self.get(experiment)
        if reports:
            return report_results(present, await self.statistics(present))
        return job_results(present, await self.jobs(present))

    async def traces(self, experiment: str | Experiment) -> list[Trace]:
        """The curves of its jobs with the seconds that each report took, in order of creation, for `hopyard.traces.write_traces`.

        What jobs trained again after a rewind is there once. Jobs that have not reported anything have no trace.
        """
        from hopyard.traces.recorder import Recorder

        present = await self.get(experiment)
        recorder = Recorder()
        async for page in self._statistics(present.id):
            recorder.add(page)
        return recorder.traces(present, await self.jobs(present))

    async def curve(self, experiment: str | Experiment, job: str, metric: str | None = None) -> list[Point]:
        """A job's curve, in order of position. That of a forked job begins with its ancestor's, up to the fork.

        That is so for ancestors of the same experiment. Where a job was forked from one of another experiment of its group, its curve
        begins at that fork: ask that experiment for the part before it.

        Args:
            experiment: Which.
            job: Id of the job.
            metric: Name of a metric; None: the one the experiment optimises.

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
        """What a job was forked from, if that is of the same experiment: in a group it may be another one's."""
        if parent is None:
            return None
        try:
            return await self.job(experiment, parent)
        except NotFound:
            return None

    async def logs(
        self, experiment: str | Experiment, job: str, *, follow: bool = False, rank: int = 0
    ) -> AsyncGenerator[LogChunk]:
        """What a job (a rank of it, on several slots) printed, node by node; with `follow` also what it prints until it ends.

        Raises:
            NotFound: There is no such job, it has not run yet, or a node it may have run on is not reachable.
        """
        connection = await self._connection()
        group = (await self.job(experiment, job)).group or id_of(experiment)
        reader = LogReader(connection, group, job, self.nodes, lambda: self.job(experiment, job), rank)
        async with aclosing(reader.follow() if follow else reader.written()) as chunks:
            async for chunk in chunks:
                yield chunk

    async def nodes(self) -> list[Node]:
        """The cluster's nodes with their slots."""
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
        """Where the cluster's services answer."""
        connection = await self._connection()
        request = experiment_pb2.GetClusterRequest()
        return converters.cluster(await connection.call(lambda: connection.experiments.GetCluster(request)))

    async def _connection(self) -> Connection:
        async with self._opening:
            if self._opened is None:
                server = await self._cluster.start() if self._cluster else find_server(self._server, self._data)
                self._opened = Connection(server, timeout=self._timeout, patience=self._patience)
            return self._opened


def id_of(experiment: str | Experiment) -> str:
    """How the cluster calls it."""
    return experiment.id if isinstance(experiment, Experiment) else experiment
