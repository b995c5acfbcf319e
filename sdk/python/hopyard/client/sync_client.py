"""The synchronous client: runs an `AsyncClient` on a background event loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from hopyard._net.rpc import DEFAULT_TIMEOUT_SECONDS
from hopyard.client.address import DEFAULT_DATA
from hopyard.client.async_client import AsyncClient
from hopyard.client.datasets import DataPartition, DataSet
from hopyard.client.display.progress import wait_with_progress
from hopyard.client.portal import LoopThread
from hopyard.client.queries import ENDED, PATIENCE_SECONDS
from hopyard.client.searches import DEFAULT_METRIC
from hopyard.client.transfer.downloads import Which
from hopyard.client.types import (
    Change,
    ClusterAddresses,
    Download,
    Experiment,
    ExperimentState,
    ExperimentStorage,
    Exported,
    Garbage,
    ImportedExperiment,
    Job,
    JobState,
    LogChunk,
    Node,
    Point,
    Statistic,
)

if TYPE_CHECKING:
    from hopyard.client.submission import SpecLike
    from hopyard.results import Results
    from hopyard.search import SearchHandle
    from hopyard.space import Space
    from hopyard.traces import Trace


class Client:
    """A client of a Hopyard cluster for code without an event loop. `AsyncClient` documents its guarantees.

    Use it as a context manager, or `close` it.

    Example:
        with Client.local(slots=2) as client:
            experiment = client.wait(client.create("experiment.yaml"))
            print(client.best(experiment))

    Args:
        server: Address of the scheduler.
        data: Data directory of a running cluster; see `AsyncClient`.
        token: The user token of the cluster. None: it is read from the folder `secrets` of the data directory, or from the variables
            HOPYARD_USER_TOKEN and HOPYARD_USER_TOKEN_FILE.
        timeout: Deadline in seconds of each try of a call.
        patience: Seconds for which a call is retried while the cluster is not reachable.
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
        self._client = AsyncClient(server, data, token=token, timeout=timeout, patience=patience)
        self._loop = LoopThread()

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
        """Create a client with its own cluster of `slots` slots on this computer, whose state is in the directory `data`.

        The directory is created if it is missing. The cluster starts with the first call and stops when the client is closed; see
        `AsyncClient.local`.
        """
        client = cls()
        client._client = AsyncClient.local(
            data, slots=slots, gpus=gpus, gpus_per_slot=gpus_per_slot, slots_per_gpu=slots_per_gpu
        )
        return client

    @classmethod
    def stored(cls, data: str | Path = DEFAULT_DATA, *, options: str = "") -> Self:
        """Create a client that reads the directory `data` of a cluster that does not run, without starting it.

        Calls that need a cluster raise `Conflict`. `options` are the options with which the command line finds the directory, with a
        leading blank, for the commands in messages. See `AsyncClient.stored`.
        """
        client = cls()
        client._client = AsyncClient.stored(data, options=options)
        return client

    @property
    def live(self) -> bool:
        """Whether the client queries a cluster; False: it reads the data of one that does not run."""
        return self._client.live

    @property
    def asynchronous(self) -> AsyncClient:
        """The asynchronous client that this object uses. It runs on the event loop of `hopyard.client.portal`."""
        return self._client

    def __enter__(self) -> Self:
        """Connect to the cluster, or start the one of a client that `local` created, and return the client."""
        try:
            self._loop.run(self._client.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close the connections, and stop the cluster of a client that `local` created. Safe to call twice.

        It does nothing in a forked process that inherited the client.
        """
        if self._loop.inherited:
            return
        self._loop.run(self._client.close())
        self._loop.close()

    def create(self, spec: SpecLike, folder: str | Path | None = None, *, interpreter: str = "") -> Experiment:
        """Create and start an experiment; see `AsyncClient.create`."""
        return self._loop.run(self._client.create(spec, folder, interpreter=interpreter))

    def get(self, experiment: str | Experiment) -> Experiment:
        """Return the current state of an experiment; see `AsyncClient.get`."""
        return self._loop.run(self._client.get(experiment))

    def experiments(self, state: ExperimentState | None = None) -> list[Experiment]:
        """Return all experiments of the cluster (`state` None) or those in one state, newest first."""
        return self._loop.run(self._client.experiments(state))

    def watch(self, experiment: str | Experiment) -> Iterator[Change]:
        """Yield the current state of the experiment and its jobs, then every change until its end; see `AsyncClient.watch`."""
        return self._loop.iterate(self._client.watch(experiment))

    def wait(
        self,
        experiment: str | Experiment,
        timeout: float | None = None,
        *,
        until: Collection[ExperimentState] = ENDED,
        progress: bool | None = None,
    ) -> Experiment:
        """Wait until the experiment has ended or is in one of the states `until`; see `AsyncClient.wait`.

        Args:
            experiment: The experiment or its id.
            timeout: Maximum time to wait in seconds; None: no limit.
            until: States to wait for.
            progress: Whether to show the progress; None: in a notebook, or if stderr is a terminal.
        """
        return wait_with_progress(
            self._loop,
            lambda heard: self._client.wait(experiment, timeout, until=until, heard=heard),
            progress,
            self._client.continuation,
        )

    def continuation(self, experiment: str) -> str:
        """Return how a user continues or watches the experiment with the id `experiment` after an interrupted wait."""
        return self._client.continuation(experiment)

    def search(
        self,
        function: Callable[..., Any],
        space: Space | Mapping[str, Any],
        *,
        metric: str | Mapping[str, Any] = DEFAULT_METRIC,
        mode: Literal["max", "min"] | None = None,
        jobs: int | None = None,
        max_iterations: int | None = None,
        max_time: float | str | None = None,
        slots: int | None = None,
        policy: str | Mapping[str, Any] | None = None,
        generator: str | Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        interpreter: str = "",
        **fields: Any,
    ) -> SearchHandle:
        """Search the best hyperparameters of a Python function, and return a handle at once.

        The function is called in a separate process for each run of a job, with a `hopyard.Trial`: a dict of the hyperparameters,
        with the functions of the job. It returns the value of the metric, or a dict of metrics. To let a policy compare jobs while
        they train, it calls `trial.report(value)` (or `hopyard.report(...)`) after each iteration.

        The function is sent as source text, also from a script or a notebook: docs/python.md says what is sent with it. A
        job that is suspended continues as a script does: from its checkpoint if the function saves one
        (`trial.report(value, checkpoint=...)`, `trial.checkpoint()`), else from its processes where a node can dump them, else from
        its beginning.

        Example:
            def objective(trial: Trial) -> float:
                loss = 4.0
                for epoch in range(10):
                    loss *= 1.0 - trial["lr"]
                    trial.report(loss)
                return loss

            with Client.local(slots=2) as client:
                search = client.search(objective, {"lr": {"uniform": [0.01, 0.9]}}, mode="min", jobs=2).wait()
                print(search.best.hyperparameters)

        Args:
            function: The objective function, defined with `def`.
            space: The hyperparameters: a `hopyard.space.Space`, or its written form as in an experiment file.
            metric: Name of the metric, or a mapping with `name`, `mode`, `target`; the value that the function returns has this name.
            mode: Whether larger ("max") or smaller ("min") values are better; None: the `mode` in the mapping `metric`.
            jobs: Maximum number of jobs; None: until the time is over, or the generator has no further configuration.
            max_iterations: The position at which a job is complete; None: when the function returns.
            max_time: Time that the search may run, in seconds or as "15m"; None: no limit.
            slots: Maximum number of slots, and so of jobs that train at a time; None: all that the cluster gives.
            policy: The policy, which ends or suspends jobs that look bad; None: `default`, which trains all to their end.
            generator: The generator, which proposes configurations; None: that of the policy, usually `random`.
            folder: Folder of code to send with the function; None: see docs/python.md.
            interpreter: Path on the nodes of the Python for training; empty: the interpreter of the node agent.
            **fields: Further fields of an experiment file, such as `seed`, `resources`, `environment`, `snapshot`.

        Raises:
            InvalidInput: The function cannot be sent, or an argument is wrong.
            SpecError: The resulting specification is invalid. The error lists all mistakes; nothing was sent.
        """
        from hopyard.search import SearchHandle

        given = {"policy": policy, "generator": generator, **fields}
        begun = self._client.search(
            function,
            space,
            metric=metric,
            mode=mode,
            jobs=jobs,
            max_iterations=max_iterations,
            max_time=max_time,
            slots=slots,
            folder=folder,
            interpreter=interpreter,
            **given,
        )
        return SearchHandle(self._loop.run(begun), self._loop)

    def pause(self, experiment: str | Experiment) -> Experiment:
        """Suspend all runs of an experiment at their next boundary and start no new ones; see `AsyncClient.pause`."""
        return self._loop.run(self._client.pause(experiment))

    def resume(self, experiment: str | Experiment) -> Experiment:
        """Continue a paused experiment; no effect if it is running. See `AsyncClient.resume`."""
        return self._loop.run(self._client.resume(experiment))

    def stop(self, experiment: str | Experiment) -> Experiment:
        """Stop an experiment and terminate all its jobs, without waiting for their end; see `AsyncClient.stop`."""
        return self._loop.run(self._client.stop(experiment))

    def close_experiment(self, experiment: str | Experiment) -> Experiment:
        """End a study as COMPLETED and terminate its unfinished jobs; see `AsyncClient.close_experiment`."""
        return self._loop.run(self._client.close_experiment(experiment))

    def keep_experiment(self, experiment: str | Experiment) -> None:
        """Restart the idle timer after which a study ends, so that it stays open; see `AsyncClient.keep_experiment`."""
        self._loop.run(self._client.keep_experiment(experiment))

    def request(
        self, experiment: str | Experiment, hyperparameters: Mapping[str, Any], position: int, *, request_id: str = ""
    ) -> Job:
        """Request the training of a configuration to a position, in 1..max_iterations, and return the created job.

        A second call with the same `request_id` returns the same job; empty: a new id. See `AsyncClient.request`.
        """
        return self._loop.run(self._client.request(experiment, hyperparameters, position, request_id=request_id))

    def request_all(
        self,
        experiment: str | Experiment,
        wanted: Sequence[tuple[Mapping[str, Any], int]],
        *,
        request_ids: Sequence[str] = (),
    ) -> list[Job]:
        """Request the training of the pairs (configuration, position) in `wanted`, all or none; return the created jobs in this order.

        `request_ids` has an idempotency key for each pair; empty: new keys. See `AsyncClient.request_all`.
        """
        return self._loop.run(self._client.request_all(experiment, wanted, request_ids=request_ids))

    def extend(
        self, experiment: str | Experiment, *, jobs: int = 0, max_iterations: int = 0, seconds: float = 0.0
    ) -> Experiment:
        """Raise the limits of an experiment; an ended experiment continues.

        `jobs` and `seconds` are added to the limits; `max_iterations` is the new length of a job. 0: unchanged. See
        `AsyncClient.extend`.
        """
        return self._loop.run(
            self._client.extend(experiment, jobs=jobs, max_iterations=max_iterations, seconds=seconds)
        )

    def retry(self, experiment: str | Experiment, jobs: Sequence[str] = ()) -> tuple[Experiment, list[Job]]:
        """Let failed jobs (`jobs` empty: all) start again. An ended experiment continues.

        Return the experiment and these jobs. If no job has failed, or a named job has not failed or cannot start again, `Conflict` is
        raised and nothing is retried. See `AsyncClient.retry`.
        """
        return self._loop.run(self._client.retry(experiment, jobs))

    def delete(
        self, experiments: Sequence[str | Experiment], *, force: bool = False, dry_run: bool = False
    ) -> list[ExperimentStorage]:
        """Delete experiments that have ended, with everything that only they use. Return what was deleted.

        With `force`, paused experiments are stopped and deleted, too. With `dry_run`, nothing is changed, and what would be deleted is
        returned. If one of the experiments cannot be deleted, `Conflict` is raised and nothing is deleted. See `AsyncClient.delete`.
        """
        return self._loop.run(self._client.delete(experiments, force=force, dry_run=dry_run))

    def update(
        self,
        experiment: str | Experiment,
        *,
        target: float | None = None,
        weight: float | None = None,
        slots: int | None = None,
        concurrency: int | None = None,
        metric: str | None = None,
        clear: Collection[str] = (),
    ) -> Experiment:
        """Change settings of an experiment. None leaves a setting unchanged.

        `clear` names settings to remove: "target", "slots", "concurrency". See `AsyncClient.update` for the others.
        """
        changed = self._client.update(
            experiment,
            target=target,
            weight=weight,
            slots=slots,
            concurrency=concurrency,
            metric=metric,
            clear=clear,
        )
        return self._loop.run(changed)

    def pause_job(self, experiment: str | Experiment, job: str) -> Job:
        """Suspend a job and hold it until `resume_job`; see `AsyncClient.pause_job`."""
        return self._loop.run(self._client.pause_job(experiment, job))

    def resume_job(self, experiment: str | Experiment, job: str) -> Job:
        """Release a job that `pause_job` holds; see `AsyncClient.resume_job`."""
        return self._loop.run(self._client.resume_job(experiment, job))

    def stop_job(self, experiment: str | Experiment, job: str) -> Job:
        """Terminate a job. Its reports are kept; see `AsyncClient.stop_job`."""
        return self._loop.run(self._client.stop_job(experiment, job))

    def jobs(self, experiment: str | Experiment, state: JobState | None = None) -> list[Job]:
        """Return all jobs of an experiment (`state` None) or those in one state, in order of creation; see `AsyncClient.jobs`."""
        return self._loop.run(self._client.jobs(experiment, state))

    def job(self, experiment: str | Experiment, job: str) -> Job:
        """Return the current state of a job; see `AsyncClient.job`."""
        return self._loop.run(self._client.job(experiment, job))

    def best(self, experiment: str | Experiment) -> Job | None:
        """Return the job with the best value of the metric so far, or None without a finite value; see `AsyncClient.best`."""
        return self._loop.run(self._client.best(experiment))

    def statistics(self, experiment: str | Experiment, job: str | None = None) -> list[Statistic]:
        """Return the reports of an experiment or of one job, ordered by job and position; see `AsyncClient.statistics`."""
        return self._loop.run(self._client.statistics(experiment, job))

    def results(self, experiment: str | Experiment, *, reports: bool = False) -> Results:
        """Return the results as a table with one row per job, or with `reports` one row per report; see `AsyncClient.results`."""
        return self._loop.run(self._client.results(experiment, reports=reports))

    def traces(self, experiment: str | Experiment) -> list[Trace]:
        """Return the traces of an experiment's jobs: learning curves with training times; see `AsyncClient.traces`."""
        return self._loop.run(self._client.traces(experiment))

    def curve(self, experiment: str | Experiment, job: str, metric: str | None = None) -> list[Point]:
        """Return the learning curve of a job, ordered by position; for a forked job with the curve before the fork.

        `metric` is the name of a metric; None: the metric that the experiment optimizes. See `AsyncClient.curve`.
        """
        return self._loop.run(self._client.curve(experiment, job, metric))

    def logs(
        self, experiment: str | Experiment, job: str, *, follow: bool = False, rank: int = 0
    ) -> Iterator[LogChunk]:
        """Yield the present output of the gang rank `rank` of a job, and with `follow` new output until the job has ended.

        See `AsyncClient.logs`.
        """
        return self._loop.iterate(self._client.logs(experiment, job, follow=follow, rank=rank))

    def download(
        self,
        experiment: str | Experiment,
        job: str | None = None,
        *,
        to: str | Path | None = None,
        which: Which = "best",
    ) -> Download:
        """Fetch a snapshot of a job (None: the best job), verify its hash, and unpack it into the new folder `to`.

        If `to` is None, the folder is in the current directory. `which` selects the snapshot at the best position, or the newest. See
        `AsyncClient.download`.
        """
        return self._loop.run(self._client.download(experiment, job, to=to, which=which))

    def export_experiment(
        self, experiment: str | Experiment, to: str | Path | None = None, *, snapshots: bool = True
    ) -> Exported:
        """Write a paused or ended experiment to the new file `to`, from which `import_experiment` can read it.

        None: a file in the current directory, named after the experiment. Without `snapshots`, jobs start from the beginning after an
        import. See `AsyncClient.export_experiment`.
        """
        return self._loop.run(self._client.export_experiment(experiment, to, snapshots=snapshots))

    def import_experiment(self, file: str | Path, name: str | None = None) -> ImportedExperiment:
        """Import an experiment from a file of `export_experiment`, under the id `name` (None: its original id).

        See `AsyncClient.import_experiment`.
        """
        return self._loop.run(self._client.import_experiment(file, name))

    def nodes(self) -> list[Node]:
        """Return the nodes of the cluster with their slots."""
        return self._loop.run(self._client.nodes())

    def drain_node(self, node: str, *, deadline: float | None = None) -> Node:
        """Drain a node until `undrain_node`: suspend its runs, store its snapshots, start no runs on it. See `AsyncClient.drain_node`.

        After `deadline` seconds (None: never) the runs that are left are ended.
        """
        return self._loop.run(self._client.drain_node(node, deadline=deadline))

    def undrain_node(self, node: str) -> Node:
        """End the drain of a node, so that runs start on it again; see `AsyncClient.undrain_node`."""
        return self._loop.run(self._client.undrain_node(node))

    def forget_node(self, node: str, *, force: bool = False) -> None:
        """Remove a lost node from the list; with `force` also if it had the only copies of snapshots. See `AsyncClient.forget_node`."""
        self._loop.run(self._client.forget_node(node, force=force))

    def data_sets(self) -> list[DataSet]:
        """Return all data sets in the catalog of the cluster, ordered by name."""
        return self._loop.run(self._client.data_sets())

    def data_set(self, name: str) -> DataSet:
        """Return a data set with the current nodes of its partitions; see `AsyncClient.data_set`."""
        return self._loop.run(self._client.data_set(name))

    def register_data(
        self, name: str, partitions: Iterable[DataPartition], *, request_id: str | None = None
    ) -> DataSet:
        """Add a data set to the catalog, after all nodes in `partitions` have read their files.

        A retry with the same `request_id` has no further effect; None: a new id. See `AsyncClient.register_data`.
        """
        return self._loop.run(self._client.register_data(name, partitions, request_id=request_id))

    def drop_data(self, name: str) -> None:
        """Remove a data set that no unfinished experiment uses from the catalog. Its files are kept; see `AsyncClient.drop_data`."""
        self._loop.run(self._client.drop_data(name))

    def collect_garbage(
        self,
        *,
        dry_run: bool = False,
        older_than: float | None = None,
        foreign: bool = False,
        idle: Sequence[str] = (),
        for_others: bool = False,
    ) -> Garbage:
        """Delete everything from the store and the connected nodes that no experiment needs; return what was deleted.

        With `dry_run`, only report what would be deleted. `AsyncClient.collect_garbage` describes the other arguments.
        """
        return self._loop.run(
            self._client.collect_garbage(
                dry_run=dry_run, older_than=older_than, foreign=foreign, idle=idle, for_others=for_others
            )
        )

    def cluster(self) -> ClusterAddresses:
        """Return the addresses and the version of the cluster's services."""
        return self._loop.run(self._client.cluster())
