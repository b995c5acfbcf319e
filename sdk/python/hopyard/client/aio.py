"""The asynchronous client."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from hopyard.client import converters
from hopyard.client.address import DEFAULT_DATA, find_server
from hopyard.client.blobs import put_blob
from hopyard.client.connection import Connection
from hopyard.client.downloads import Which, choose, download
from hopyard.client.logs import LogReader
from hopyard.client.types import (
    Change,
    Cluster,
    Download,
    Experiment,
    ExperimentState,
    Exported,
    Garbage,
    Imported,
    Job,
    JobState,
    LogChunk,
    Node,
    Point,
    Statistic,
)
from hopyard.errors import InvalidInput, NotFound, TimedOut, Unavailable
from hopyard.rpc import DEFAULT_TIMEOUT_SECONDS, Backoff
from hopyard.rpc.enums import JOB_STATES
from hopyard.v1 import appstat_pb2, experiment_pb2, job_manager_pb2, resource_manager_pb2

if TYPE_CHECKING:
    from hopyard.client.embedded import EmbeddedCluster
    from hopyard.client.submission import SpecLike, Submission
    from hopyard.results import Results

PATIENCE_SECONDS: Final = 30.0
"""How long a call is tried again while the cluster is not reachable, unless the client is told otherwise."""

_PAGE: Final = 1000
_GARBAGE_SECONDS: Final = 1800.0
_WATCH_SECONDS: Final = 3600.0
_LAST_WORDS_SECONDS: Final = 2.0
_MOST: Final = 2**31 - 1

ENDED: Final = frozenset(state for state in ExperimentState if state.ended)


class AsyncClient:
    """A client of a Hopyard cluster, for asyncio. Use it as a context manager, or `close` it.

    It raises `hopyard.errors`; an experiment file that is wrong raises `hopyard.spec.SpecError`. Calls have a
    deadline, and are tried again while the cluster is not reachable. Experiments are named by id or by an
    `Experiment`.

    Args:
        server: The scheduler's HOST:PORT.
        data: A data directory whose cluster runs (see `hopyard up`). With neither this nor `server`, the environment's
            HOPYARD_SERVER or HOPYARD_DATA, then `./hopyard-data`.
        timeout: Deadline in seconds of one try of a call.
        patience: Seconds in which a call is tried again while the cluster is not reachable.
    """

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
        from hopyard.client.embedded import EmbeddedCluster

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

    # ---------------------------------------------------------------------------------------------------- experiments

    async def create(
        self, spec: SpecLike | Submission, folder: str | Path | None = None, *, interpreter: str = ""
    ) -> Experiment:
        """Start an experiment.

        Args:
            spec: Path of an experiment file; or its text (with line breaks, or starting with a brace); or its
                contents as a mapping, in which `trainer` may be the Trainer class itself; or what `prepare` made of one of these.
            folder: Where the training code lies; None: beside the experiment file or the trainer's class, else the
                current directory. It is packed and travels to the machines.
            interpreter: Path on the nodes of the Python that trains, unless the specification names one; empty: the node
                agent's own.

        Raises:
            SpecError: All mistakes of the specification, before anything is sent.
            InvalidInput: A file is not there, or cannot be read.
        """
        # Specifications need pydantic, which takes a while to import and which nothing else here needs.
        from hopyard.client.submission import Submission, pack, prepare

        connection = await self._connection()
        submission = spec if isinstance(spec, Submission) else await asyncio.to_thread(prepare, spec, folder)
        bundle = ""
        if submission.folder is not None:
            packed = await asyncio.to_thread(pack, submission.folder)
            bundle = packed.sha256
            await put_blob(connection, bundle, packed.data)
        request = experiment_pb2.CreateExperimentRequest(
            spec=submission.text,
            source=submission.source,
            bundle=bundle,
            request_id=uuid.uuid4().hex,
            interpreter=submission.interpreter(interpreter),
        )
        answer = await connection.call(lambda: connection.experiments.CreateExperiment(request))
        return converters.experiment(answer.experiment)

    async def get(self, experiment: str | Experiment) -> Experiment:
        """An experiment's present state.

        Raises:
            NotFound: There is none with this id.
        """
        connection = await self._connection()
        request = experiment_pb2.GetExperimentRequest(experiment=_id(experiment))
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

    async def watch(self, experiment: str | Experiment) -> AsyncGenerator[Change]:
        """The present state of the experiment and its jobs, then every change, until it ends.

        When the connection is lost it is opened again, and the present state comes once more. A slow reader gets the
        newest state of each job, not every step between.

        Raises:
            NotFound: There is no such experiment.
            Unavailable: The cluster was not reachable for longer than the client's patience.
        """
        connection = await self._connection()
        request = experiment_pb2.WatchExperimentRequest(experiment=_id(experiment))
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
            raise TimedOut(f"experiment {_id(experiment)}: still {state} after {timeout:g} s") from error
        return await self.get(experiment)

    async def pause(self, experiment: str | Experiment) -> Experiment:
        """Suspend all its runs at their next boundary and start none; `wait(..., until={PAUSED})` waits for that."""
        connection = await self._connection()
        request = experiment_pb2.PauseExperimentRequest(experiment=_id(experiment))
        answer = await connection.call(lambda: connection.experiments.PauseExperiment(request))
        return converters.experiment(answer.experiment)

    async def resume(self, experiment: str | Experiment) -> Experiment:
        """Go on with a paused experiment."""
        connection = await self._connection()
        request = experiment_pb2.ResumeExperimentRequest(experiment=_id(experiment))
        answer = await connection.call(lambda: connection.experiments.ResumeExperiment(request))
        return converters.experiment(answer.experiment)

    async def stop(self, experiment: str | Experiment) -> Experiment:
        """End it: terminate all its jobs. The best job's snapshot is kept."""
        connection = await self._connection()
        request = experiment_pb2.StopExperimentRequest(experiment=_id(experiment))
        answer = await connection.call(lambda: connection.experiments.StopExperiment(request))
        return converters.experiment(answer.experiment)

    async def extend(
        self,
        experiment: str | Experiment,
        *,
        jobs: int = 0,
        max_iterations: int = 0,
        seconds: float = 0.0,
    ) -> Experiment:
        """Give it more to do; one that has ended goes on.

        Args:
            experiment: Which.
            jobs: How many jobs more.
            max_iterations: The new length of a job in units, not below the present one; 0: unchanged.
            seconds: How much time more.

        Raises:
            InvalidInput: Nothing to extend by, less than there is, or more than can be counted.
        """
        if max(jobs, max_iterations) > _MOST:
            raise InvalidInput(f"an extension is at most {_MOST} jobs or units, found {max(jobs, max_iterations)}")
        connection = await self._connection()
        request = experiment_pb2.ExtendExperimentRequest(
            experiment=_id(experiment),
            jobs=jobs,
            max_iterations=max_iterations,
            seconds=seconds,
            request_id=uuid.uuid4().hex,
        )
        answer = await connection.call(lambda: connection.experiments.ExtendExperiment(request))
        return converters.experiment(answer.experiment)

    async def update(
        self,
        experiment: str | Experiment,
        *,
        target: float | None = None,
        weight: float | None = None,
        slots: int | None = None,
        concurrency: int | None = None,
        clear: Collection[str] = (),
    ) -> Experiment:
        """Change its terms, whatever state it is in; None leaves a term as it is.

        Args:
            experiment: Which.
            target: It ends when a job reaches this value, at once if one has.
            weight: Of its share, above 0.
            slots: The most machines that it uses, at least 1. What is above a lower limit its policy gives up, or after a
                period of grace the scheduler takes.
            concurrency: The most jobs that train at a time, at least 1; what is above goes likewise.
            clear: Terms that are to hold no more: "target", "slots", "concurrency".

        Raises:
            InvalidInput: Nothing to change, or a value that cannot be.
        """
        if max(slots or 0, concurrency or 0) > _MOST:
            raise InvalidInput(f"slots and concurrency are at most {_MOST}")
        connection = await self._connection()
        request = experiment_pb2.UpdateExperimentRequest(
            experiment=_id(experiment),
            target=target,
            weight=weight,
            slots=slots,
            concurrency=concurrency,
            clear=clear,
            request_id=uuid.uuid4().hex,
        )
        answer = await connection.call(lambda: connection.experiments.UpdateExperiment(request))
        return converters.experiment(answer.experiment)

    # ----------------------------------------------------------------------------------------------- jobs and results

    async def pause_job(self, experiment: str | Experiment, job: str) -> Job:
        """Suspend one job at its next boundary, and keep it so whatever the policy wants; the experiment goes on without it."""
        connection = await self._connection()
        request = job_manager_pb2.PauseJobRequest(experiment=_id(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.PauseJob(request))
        return converters.job(answer.job)

    async def resume_job(self, experiment: str | Experiment, job: str) -> Job:
        """Let a job go on that `pause_job` paused: the policy may start it again."""
        connection = await self._connection()
        request = job_manager_pb2.UnpauseJobRequest(experiment=_id(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.UnpauseJob(request))
        return converters.job(answer.job)

    async def stop_job(self, experiment: str | Experiment, job: str) -> Job:
        """End one job: a running one at its next boundary, a waiting one at once. What it reported stays."""
        connection = await self._connection()
        request = job_manager_pb2.TerminateJobRequest(experiment=_id(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.TerminateJob(request))
        return converters.job(answer.job)

    async def jobs(self, experiment: str | Experiment, state: JobState | None = None) -> list[Job]:
        """An experiment's jobs in order of creation; with `state`, those in it."""
        connection = await self._connection()
        request = job_manager_pb2.ListJobsRequest(experiment=_id(experiment), page_size=_PAGE)
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
        request = job_manager_pb2.GetJobRequest(experiment=_id(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.GetJob(request))
        return converters.job(answer.job)

    async def best(self, experiment: str | Experiment) -> Job | None:
        """The job with the best value of the metric so far; None before the first report."""
        present = await self.get(experiment)
        return await self.job(present.id, present.best_job) if present.best_job is not None else None

    async def statistics(self, experiment: str | Experiment, job: str | None = None) -> list[Statistic]:
        """All accepted reports, ordered by job and position; of one job, or of all."""
        connection = await self._connection()
        request = appstat_pb2.QueryStatisticsRequest(experiment=_id(experiment), job=job or "", page_size=10_000)
        found: list[Statistic] = []
        while True:
            answer = await connection.with_appstat(lambda stub: stub.QueryStatistics(request))
            found.extend(map(converters.statistic, answer.statistics))
            if not answer.next_page_token:
                return found
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

    async def curve(self, experiment: str | Experiment, job: str, metric: str | None = None) -> list[Point]:
        """A job's curve, in order of position.

        Args:
            experiment: Which.
            job: Id of the job.
            metric: Name of a metric; None: the one the experiment optimises.

        Raises:
            NotFound: There is no such experiment or job.
        """
        present = await self.get(experiment)
        await self.job(present.id, job)
        return converters.curve(await self.statistics(present.id, job), metric or present.metric.name)

    async def logs(
        self, experiment: str | Experiment, job: str, *, follow: bool = False, rank: int = 0
    ) -> AsyncGenerator[LogChunk]:
        """What a job (a rank of it, on several machines) printed, node by node; with `follow` also what it prints until it ends.

        Raises:
            NotFound: There is no such job, it has not run yet, or a node it may have run on is not reachable.
        """
        connection = await self._connection()
        group = (await self.job(experiment, job)).group or _id(experiment)
        reader = LogReader(connection, group, job, self.nodes, lambda: self.job(experiment, job), rank)
        async with aclosing(reader.follow() if follow else reader.written()) as chunks:
            async for chunk in chunks:
                yield chunk

    async def download(
        self,
        experiment: str | Experiment,
        job: str | None = None,
        *,
        to: str | Path | None = None,
        which: Which = "best",
    ) -> Download:
        """Fetch a snapshot, verify its hash, and unpack it.

        Args:
            experiment: Which.
            job: Id of the job; None: the best one.
            to: The folder to make; None: one named after experiment, job and position in the current directory.
            which: The job's snapshot at its best position, or its newest.

        Raises:
            NotFound: There is no best job yet, or it has no snapshot.
            AlreadyExists: The folder is there.
            DataLoss: The bytes are not what their hash promises.
        """
        present = await self.get(experiment)
        name = job or present.best_job
        if name is None:
            raise NotFound(f"experiment {present.id} has no best job yet: none has reported {present.metric.name}")
        chosen = await self.job(present.id, name)
        snapshot = choose(chosen, which)
        target = Path(to) if to is not None else Path(f"{present.name}-job{chosen.id}-at{snapshot.position}")
        got = await download(await self._connection(), chosen, snapshot, await self.nodes(), target.absolute())
        got = replace(got, metric=present.metric.name)
        if chosen.best_value is None:
            return got
        value: float | None = chosen.best_value
        if got.position != chosen.best_position:
            points = converters.curve(await self.statistics(present.id, chosen.id), present.metric.name)
            value = next((point.value for point in points if point.position == got.position), None)
        return replace(
            got,
            value=value,
            best_value=chosen.best_value,
            best_position=chosen.best_position,
            best_missing=all(one.position != chosen.best_position for one in chosen.snapshots),
        )

    async def export_experiment(
        self, experiment: str | Experiment, to: str | Path | None = None, *, snapshots: bool = True
    ) -> Exported:
        """Write an experiment to one file, from which another cluster can go on with it (docs/exporting.md).

        An experiment of a group takes the group with it: they share one journal.

        Args:
            experiment: Which; paused, or over.
            to: The file to make; None: one named after the experiment in the current directory.
            snapshots: Whether its snapshots travel too. Without them jobs begin anew elsewhere.

        Raises:
            Conflict: It runs, or went on meanwhile.
            AlreadyExists: The file is there.
        """
        from hopyard.client.travelling import write

        present = await self.get(experiment)
        return await write(self, await self._connection(), present, Path(to) if to is not None else None, snapshots)

    async def import_experiment(self, file: str | Path, name: str | None = None) -> Imported:
        """Bring an experiment from a file: it is there as it was, and goes on when it is resumed or extended.

        Args:
            file: What `export_experiment` made.
            name: Id that it gets; None: its own.

        Raises:
            NotFound: There is no such file.
            InvalidInput: It is none of an export, or of a newer version.
            DataLoss: It is truncated or was altered; nothing was changed.
            AlreadyExists: Its id is taken here.
        """
        from hopyard.client.travelling import read

        return await read(self, await self._connection(), Path(file), name)

    # -------------------------------------------------------------------------------------------------------- cluster

    async def nodes(self) -> list[Node]:
        """The cluster's nodes with their machines."""
        connection = await self._connection()
        request = resource_manager_pb2.ListNodesRequest(page_size=_PAGE)
        found: list[Node] = []
        while True:
            answer = await connection.call(lambda: connection.resources.ListNodes(request))
            found.extend(map(converters.node, answer.nodes))
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def collect_garbage(
        self,
        *,
        dry_run: bool = False,
        older_than: float | None = None,
        foreign: bool = False,
        idle: Sequence[str] = (),
    ) -> Garbage:
        """Delete what nobody needs from the store and from the nodes that are connected.

        Args:
            dry_run: Change nothing, only answer what there is.
            older_than: What was written or wanted within so many seconds stays; None: ten minutes.
            foreign: Delete also what the index of a store given by URL does not know, which may be another cluster's.
            idle: Hashes of snapshots on nodes whose agents do not run; the answer says which of them nobody needs.
        """
        connection = await self._connection()
        request = experiment_pb2.CollectGarbageRequest(
            dry_run=dry_run, older_than_seconds=older_than, foreign=foreign, sha256=idle
        )
        answer = await connection.call(lambda: connection.experiments.CollectGarbage(request, timeout=_GARBAGE_SECONDS))
        return converters.garbage(answer, dry_run=dry_run)

    async def cluster(self) -> Cluster:
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


def _id(experiment: str | Experiment) -> str:
    return experiment.id if isinstance(experiment, Experiment) else experiment
