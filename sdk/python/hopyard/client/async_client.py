"""The client for asyncio: `AsyncClient` adds the calls that change a cluster to the queries of `ClientQueries`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopyard._common.formatting import printable
from hopyard._net.rpc.values import hyperparameters_to_proto
from hopyard.client.datasets import DataPartition, DataSet
from hopyard.client.queries import ClientQueries, id_of
from hopyard.client.searches import ClientSearches
from hopyard.client.types import (
    Download,
    Experiment,
    ExperimentStorage,
    Exported,
    Garbage,
    ImportedExperiment,
    Job,
    Node,
)
from hopyard.client.wire import converters
from hopyard.errors import InvalidInput, NotFound
from hopyard.v1 import data_pb2, experiment_pb2, job_manager_pb2, resource_manager_pb2

if TYPE_CHECKING:
    from hopyard.client.submission import SpecLike, Submission
    from hopyard.client.transfer.downloads import Which

_GARBAGE_SECONDS: Final = 1800.0
_REGISTER_SECONDS: Final = 24 * 3600.0
"""Deadline of `register_data`, during which nodes read the complete files, which may be terabytes."""
_MOST: Final = 2**31 - 1


class AsyncClient(ClientSearches, ClientQueries):
    """A client of a Hopyard cluster, for asyncio. Use it as a context manager, or `close` it.

    Methods raise the errors in `hopyard.errors`; an invalid experiment file raises `hopyard.spec.SpecError`. Each call
    has a deadline, and is retried while the cluster is not reachable; it raises `Unavailable` after `patience` seconds.
    Experiments are given by id or as an `Experiment`.

    Example:
        async with AsyncClient.local(slots=2) as client:
            experiment = await client.wait(await client.create("experiment.yaml"))
            print(await client.best(experiment))

    Args:
        server: Address of the scheduler.
        data: Data directory of a running cluster (see `hopyard up`). Without `server` and `data`, the environment
            variable HOPYARD_SERVER is used, then HOPYARD_DATA, then `./hopyard-data`.
        token: The user token of the cluster. None: it is read from the folder `secrets` of the data directory, or from the variables
            HOPYARD_USER_TOKEN and HOPYARD_USER_TOKEN_FILE.
        timeout: Deadline in seconds of each try of a call.
        patience: Seconds for which a call is retried while the cluster is not reachable.
    """

    async def create(
        self, spec: SpecLike | Submission, folder: str | Path | None = None, *, interpreter: str = ""
    ) -> Experiment:
        """Create and start an experiment.

        Args:
            spec: Path of an experiment file; or its text (with line breaks, or starting with a brace); or its contents
                as a mapping, in which `trainer` may be the trainer class itself; or the result of `prepare`.
            folder: Folder of the training code, which is packed and sent to the nodes; None: the folder of the
                experiment file or of the trainer class, else the current directory.
            interpreter: Path on the nodes of the Python interpreter for training, unless the specification names one;
                empty: the interpreter of the node agent.

        Returns:
            The experiment. Its `note` is the policy's remark about the settings.

        Raises:
            SpecError: The specification is invalid. The error lists all mistakes; nothing was sent.
            InvalidInput: A file is missing or unreadable.
        """
        # Specifications import pydantic, which is slow and which no other method needs.
        from hopyard.client.submission import Submission, pack, prepare
        from hopyard.client.transfer.blobs import put_blob

        connection = await self._connection()
        submission = spec if isinstance(spec, Submission) else await asyncio.to_thread(prepare, spec, folder)
        bundle = ""
        if submission.folder is not None or submission.files:
            packed = await asyncio.to_thread(pack, submission.folder, submission.files)
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
        return replace(converters.experiment(answer.experiment), note=printable(answer.note))

    async def pause(self, experiment: str | Experiment) -> Experiment:
        """Suspend all runs of an experiment at their next boundary and start no new ones.

        The call returns before the runs are suspended; `wait(..., until={ExperimentState.PAUSED})` waits for that.

        Raises:
            NotFound: There is no such experiment.
            Conflict: The experiment has ended.
        """
        connection = await self._connection()
        request = experiment_pb2.PauseExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.PauseExperiment(request))
        return converters.experiment(answer.experiment)

    async def resume(self, experiment: str | Experiment) -> Experiment:
        """Continue a paused experiment, and return it without waiting for runs. No effect if it is running.

        Raises:
            NotFound: There is no such experiment.
            Conflict: The experiment has ended; `extend` continues it.
        """
        connection = await self._connection()
        request = experiment_pb2.ResumeExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.ResumeExperiment(request))
        return converters.experiment(answer.experiment)

    async def stop(self, experiment: str | Experiment) -> Experiment:
        """Stop an experiment and terminate all its jobs. The snapshot of the best job is kept. No effect if the experiment has ended.

        The call returns before running jobs have ended; `wait` waits for that.

        Raises:
            NotFound: There is no such experiment.
        """
        connection = await self._connection()
        request = experiment_pb2.StopExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.StopExperiment(request))
        return converters.experiment(answer.experiment)

    async def close_experiment(self, experiment: str | Experiment) -> Experiment:
        """End a study as COMPLETED. Jobs that are not yet trained to their requested position are terminated.

        No effect if it has ended. An experiment that is no study ends in the same way. The call does not wait for the end of
        running jobs.

        Raises:
            NotFound: There is no such experiment.
        """
        connection = await self._connection()
        request = experiment_pb2.CloseExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.CloseExperiment(request))
        return converters.experiment(answer.experiment)

    async def keep_experiment(self, experiment: str | Experiment) -> None:
        """Restart the idle timer of a study, after which it ends (`stop.idle`), so that it stays open.

        No effect while the study has something to train, or on an experiment that is no study.

        Raises:
            NotFound: There is no such experiment.
            Conflict: The experiment has ended.
        """
        connection = await self._connection()
        request = experiment_pb2.KeepExperimentRequest(experiment=id_of(experiment))
        await connection.call(lambda: connection.experiments.KeepExperiment(request))

    async def request(
        self,
        experiment: str | Experiment,
        hyperparameters: Mapping[str, Any],
        position: int,
        *,
        request_id: str = "",
    ) -> Job:
        """Request the training of a configuration to a position, in addition to the configurations of the generator.

        Args:
            experiment: The experiment or its id. Its policy must support requests, as `stage_tree` does.
            hyperparameters: A value for each name of the space.
            position: Position in the experiment's unit, in 1..max_iterations.
            request_id: Key that makes the call idempotent: a second call with it returns the same job. Empty: a new
                key.

        Returns:
            The created job. It completes at the position, possibly at once if the same training exists already. It can
            be watched and queried like any other job.

        Raises:
            NotFound: There is no such experiment.
            InvalidInput: The configuration is not in the space, or the position is out of range.
            Conflict: The experiment has ended, its policy does not support requests, or `request_id` belongs to a
                request with another configuration or position.
        """
        (job,) = await self.request_all(experiment, [(hyperparameters, position)], request_ids=[request_id])
        return job

    async def request_all(
        self,
        experiment: str | Experiment,
        wanted: Sequence[tuple[Mapping[str, Any], int]],
        *,
        request_ids: Sequence[str] = (),
    ) -> list[Job]:
        """Request the training of up to 1,000 configurations, each to its position. Either all are accepted or none. See `request`.

        Args:
            experiment: The experiment or its id.
            wanted: Pairs of a configuration and a position.
            request_ids: One request id for each pair; empty: new ids.

        Returns:
            The created jobs, in the order of `wanted`.

        Raises:
            NotFound: There is no such experiment.
            InvalidInput: Some requests are invalid, or the number of ids differs. The scheduler's error lists all
                mistakes.
            Conflict: The experiment has ended, its policy does not support requests, or an id belongs to a request with
                another configuration or position.
        """
        ids = list(request_ids) or [""] * len(wanted)
        if len(ids) != len(wanted):
            raise InvalidInput(
                f"request_ids: give one for each of the {len(wanted)} requests, or none; found {len(ids)}"
            )
        request = experiment_pb2.RequestJobsRequest(experiment=id_of(experiment))
        for (hyperparameters, position), name in zip(wanted, ids, strict=True):
            if not isinstance(hyperparameters, Mapping):
                raise InvalidInput(
                    f"hyperparameters: needs a value for each name of the space, found {hyperparameters!r:.80}"
                )
            if type(position) is not int or not 1 <= position <= _MOST:
                raise InvalidInput(f"position: must be a whole number in 1..max_iterations, found {position!r:.80}")
            if not isinstance(name, str):
                raise InvalidInput(f"request_ids: must be strings, found {name!r:.80}")
            given = hyperparameters_to_proto(hyperparameters)
            request.jobs.add(hyperparameters=given, position=position, request_id=name or uuid.uuid4().hex)
        connection = await self._connection()
        answer = await connection.call(lambda: connection.experiments.RequestJobs(request))
        return [converters.job(job) for job in answer.jobs]

    async def extend(
        self,
        experiment: str | Experiment,
        *,
        jobs: int = 0,
        max_iterations: int = 0,
        seconds: float = 0.0,
    ) -> Experiment:
        """Raise the limits of an experiment. An ended experiment continues.

        Args:
            experiment: The experiment or its id.
            jobs: Number of additional jobs; 0: none.
            max_iterations: The new length of a job in the experiment's unit, not below the current one; 0: unchanged.
            seconds: Seconds to add to the time limit `stop.max_time`; 0: none.

        Raises:
            NotFound: There is no such experiment.
            InvalidInput: No extension is given, `max_iterations` is below the current one, `seconds` is given and the experiment has
                no time limit, or a number is out of range.
        """
        if max(jobs, max_iterations) > _MOST:
            raise InvalidInput(f"an extension is at most {_MOST} jobs or units, found {max(jobs, max_iterations)}")
        connection = await self._connection()
        request = experiment_pb2.ExtendExperimentRequest(
            experiment=id_of(experiment),
            jobs=jobs,
            max_iterations=max_iterations,
            seconds=seconds,
            request_id=uuid.uuid4().hex,
        )
        answer = await connection.call(lambda: connection.experiments.ExtendExperiment(request))
        return converters.experiment(answer.experiment)

    async def retry(self, experiment: str | Experiment, jobs: Sequence[str] = ()) -> tuple[Experiment, list[Job]]:
        """Let failed jobs start again: from their newest snapshots, or else from the beginning. An ended experiment continues.

        Args:
            experiment: The experiment or its id.
            jobs: Ids of failed jobs; empty: all failed jobs.

        Returns:
            The experiment, and the jobs that start again.

        Raises:
            NotFound: There is no such experiment.
            Conflict: No job has failed, or a named job has not failed or cannot start again. Nothing is retried.
        """
        connection = await self._connection()
        request = experiment_pb2.RetryJobsRequest(experiment=id_of(experiment), jobs=jobs, request_id=uuid.uuid4().hex)
        answer = await connection.call(lambda: connection.experiments.RetryJobs(request))
        return converters.experiment(answer.experiment), [converters.job(job) for job in answer.jobs]

    async def delete(
        self, experiments: Sequence[str | Experiment], *, force: bool = False, dry_run: bool = False
    ) -> list[ExperimentStorage]:
        """Delete experiments that have ended, with everything that only they use. Return what was deleted.

        Args:
            experiments: The experiments or their ids. Of a group, all members must be named.
            force: Also delete paused experiments, which are stopped first.
            dry_run: Change nothing; return what would be deleted. The same errors are raised.

        Raises:
            NotFound: There is no such experiment.
            Conflict: An experiment has not ended (with `force`: nor is it paused), or a member of its group is not named. Nothing is
                deleted.
            InvalidInput: No experiment is named.
        """
        connection = await self._connection()
        request = experiment_pb2.DeleteExperimentsRequest(
            experiments=[id_of(one) for one in experiments], force=force, dry_run=dry_run, request_id=uuid.uuid4().hex
        )
        answer = await connection.call(
            lambda: connection.experiments.DeleteExperiments(request, timeout=_GARBAGE_SECONDS)
        )
        return [converters.storage(one) for one in answer.deleted]

    async def drain_node(self, node: str, *, deadline: float | None = None) -> Node:
        """Drain a node until `undrain_node`: suspend its runs at their next boundary, store its snapshots, start no runs on it.

        The call does not wait for the runs; the node is DRAINED when nothing on it is needed any more.

        Args:
            node: The id of the node.
            deadline: Seconds from now (0 or more) after which the runs that are left are ended; their jobs continue elsewhere from
                their last snapshots. None: never, or the present deadline if the node is drained already.

        Raises:
            NotFound: There is no such node.
            InvalidInput: The deadline is negative or too long.
        """
        connection = await self._connection()
        request = resource_manager_pb2.DrainNodeRequest(node=node, deadline_seconds=deadline)
        return converters.node((await connection.call(lambda: connection.resources.DrainNode(request))).node)

    async def undrain_node(self, node: str) -> Node:
        """End the drain of a node, so that runs start on it again, and return it. No effect if it is not drained.

        Raises:
            NotFound: There is no such node.
        """
        connection = await self._connection()
        request = resource_manager_pb2.UndrainNodeRequest(node=node)
        return converters.node((await connection.call(lambda: connection.resources.UndrainNode(request))).node)

    async def forget_node(self, node: str, *, force: bool = False) -> None:
        """Remove a lost node from the list of nodes.

        Args:
            node: The id of the node.
            force: Whether to remove it also if it had the only copies of snapshots.

        Raises:
            NotFound: There is no such node.
            Conflict: The node is connected, or it had the only copies of snapshots and `force` is False.
        """
        connection = await self._connection()
        request = resource_manager_pb2.ForgetNodeRequest(node=node, force=force)
        await connection.call(lambda: connection.resources.ForgetNode(request))

    async def update(
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
        """Change settings of an experiment in any state. None leaves a setting unchanged.

        Args:
            experiment: The experiment or its id.
            target: Value of the metric that ends the experiment, immediately if a job has already reached it.
            weight: Weight with which the experiment gets a share of the cluster's slots, above 0.
            slots: Maximum number of slots, at least 1. If it is lowered, the policy gives up the excess slots, or
                the scheduler takes them after 30 seconds.
            concurrency: Maximum number of jobs that train at the same time, at least 1. Excess jobs are handled in the
                same way.
            metric: Name of the metric, also for the other experiments of its group. It can change while no report
                contains the present one and the generator has used no results.
            clear: Settings to remove: "target", "slots", "concurrency". None of them may also be set by an argument.

        Raises:
            NotFound: There is no such experiment.
            Conflict: The metric cannot change, or there are reports and none contains the new one.
            InvalidInput: No change is given, or a value is out of range.
        """
        if max(slots or 0, concurrency or 0) > _MOST:
            raise InvalidInput(f"slots and concurrency are at most {_MOST}")
        connection = await self._connection()
        request = experiment_pb2.UpdateExperimentRequest(
            experiment=id_of(experiment),
            target=target,
            weight=weight,
            slots=slots,
            concurrency=concurrency,
            metric=metric or "",
            clear=clear,
            request_id=uuid.uuid4().hex,
        )
        answer = await connection.call(lambda: connection.experiments.UpdateExperiment(request))
        return converters.experiment(answer.experiment)

    async def pause_job(self, experiment: str | Experiment, job: str) -> Job:
        """Suspend a job at its next boundary and hold it (state HELD) until `resume_job`. The policy cannot start it meanwhile.

        Other jobs continue. The call returns before the job is suspended.

        Raises:
            NotFound: There is no such experiment or job.
            Conflict: The job or its experiment has ended.
        """
        connection = await self._connection()
        request = job_manager_pb2.PauseJobRequest(experiment=id_of(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.PauseJob(request))
        return converters.job(answer.job)

    async def resume_job(self, experiment: str | Experiment, job: str) -> Job:
        """Release a job that `pause_job` holds, so that the policy may start it again. No effect on a job that is not paused.

        Raises:
            NotFound: There is no such experiment or job.
            Conflict: The job or its experiment has ended.
        """
        connection = await self._connection()
        request = job_manager_pb2.UnpauseJobRequest(experiment=id_of(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.UnpauseJob(request))
        return converters.job(answer.job)

    async def stop_job(self, experiment: str | Experiment, job: str) -> Job:
        """Terminate a job: a running one at its next boundary, an idle one immediately. No effect if the job has ended.

        Its reports are kept.

        Raises:
            NotFound: There is no such experiment or job.
            Conflict: The experiment has ended.
        """
        connection = await self._connection()
        request = job_manager_pb2.TerminateJobRequest(experiment=id_of(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.TerminateJob(request))
        return converters.job(answer.job)

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
            experiment: The experiment or its id.
            job: Id of the job; None: the best job.
            to: The folder to create; None: a folder in the current directory, named after experiment, job and position.
            which: "best": the snapshot at the job's best position, or the newest if there is none; "newest".

        Raises:
            NotFound: There is no best job yet, or the job has no snapshot.
            AlreadyExists: The folder already exists.
            DataLoss: The bytes do not match their hash.
            Unsupported: The snapshot contains processes, which only a node can restore.
        """
        from hopyard.client.transfer.downloads import choose, download

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
        """Write an experiment to one file, from which another cluster can continue it (docs/exporting.md).

        The experiments of a group share one journal and are exported together.

        Args:
            experiment: The experiment or its id. It must be paused or ended.
            to: The file to create; None: a file in the current directory, named after the experiment.
            snapshots: Whether to include snapshots. Without them, jobs start from the beginning after an import.

        Raises:
            Conflict: The experiment runs, or changed during the export.
            AlreadyExists: The file already exists.
        """
        from hopyard.client.transfer.export_import import write

        present = await self.get(experiment)
        return await write(self, await self._connection(), present, Path(to) if to is not None else None, snapshots)

    async def import_experiment(self, file: str | Path, name: str | None = None) -> ImportedExperiment:
        """Import an experiment from a file. It has the exported state, and continues after `resume` or `extend`.

        Args:
            file: A file that `export_experiment` wrote.
            name: The id of the imported experiment; None: its original id. The experiments of a group keep their ids.

        Returns:
            The experiment, or the first one of the group, and the number of its snapshots in the store.

        Raises:
            NotFound: There is no such file.
            InvalidInput: The file is not an export, has a newer format version, or contains a group although `name` is given.
            DataLoss: The file is truncated or modified. Nothing was imported.
            AlreadyExists: The id already exists in this cluster.
        """
        from hopyard.client.transfer.export_import import read

        return await read(self, await self._connection(), Path(file), name)

    async def register_data(
        self, name: str, partitions: Iterable[DataPartition], *, request_id: str | None = None
    ) -> DataSet:
        """Add a data set to the catalog of the cluster, after all nodes in `partitions` have read their files.

        If an error occurs, nothing is added.

        Args:
            name: The name of the data set in experiment files.
            partitions: Partitions "train/0", "train/1", ... and "eval/0", ..., each with its replicas (node and
                absolute path) or with a URL and, if known, size, hash and number of examples.
            request_id: Key that makes the call idempotent, for a retry after a lost response; None: a new key.

        Raises:
            InvalidInput: A name is invalid, a node is unknown, a file is missing, or replicas differ.
            AlreadyExists: The name already exists.
            Conflict: A node in `partitions` is not connected.
        """
        connection = await self._connection()
        request = data_pb2.RegisterDataRequest(
            data=converters.data_set_to_proto(name, partitions), request_id=request_id or uuid.uuid4().hex
        )
        answer = await connection.call(lambda: connection.data.RegisterData(request, timeout=_REGISTER_SECONDS))
        return converters.data_set(answer.data)

    async def drop_data(self, name: str) -> None:
        """Remove a data set from the catalog. Its files are kept.

        Raises:
            NotFound: There is no data set with this name.
            Conflict: An unfinished experiment uses it.
        """
        connection = await self._connection()
        request = data_pb2.DropDataRequest(name=name)
        await connection.call(lambda: connection.data.DropData(request))

    async def collect_garbage(
        self,
        *,
        dry_run: bool = False,
        older_than: float | None = None,
        foreign: bool = False,
        idle: Sequence[str] = (),
        for_others: bool = False,
    ) -> Garbage:
        """Delete everything from the store and the connected nodes that no experiment needs.

        Args:
            dry_run: Only report what would be deleted.
            older_than: Keep everything that was written or requested within this many seconds; None: ten minutes.
            foreign: Also delete blobs in a store given by URL that this cluster's index does not contain. They may
                belong to another cluster.
            idle: Hashes of snapshots on nodes without a running agent. The result lists those that no experiment needs.
            for_others: Also delete the snapshots that finished experiments keep only for other experiments.

        Returns:
            Number and size of what was deleted (in a dry run: would be deleted) by kind and place, and the usage of the store.
        """
        connection = await self._connection()
        request = experiment_pb2.CollectGarbageRequest(
            dry_run=dry_run, older_than_seconds=older_than, foreign=foreign, sha256=idle, for_others=for_others
        )
        answer = await connection.call(lambda: connection.experiments.CollectGarbage(request, timeout=_GARBAGE_SECONDS))
        return converters.garbage(answer, dry_run=dry_run)
