"""The asynchronous client."""

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
from hopyard.client.transfer.blobs import put_blob
from hopyard.client.transfer.downloads import Which, choose, download
from hopyard.client.types import Download, Experiment, Exported, Garbage, ImportedExperiment, Job
from hopyard.client.wire import converters
from hopyard.errors import InvalidInput, NotFound
from hopyard.v1 import data_pb2, experiment_pb2, job_manager_pb2

if TYPE_CHECKING:
    from hopyard.client.submission import SpecLike, Submission

_GARBAGE_SECONDS: Final = 1800.0
_REGISTER_SECONDS: Final = 24 * 3600.0
"""Nodes read all that is registered, which may be terabytes."""
_MOST: Final = 2**31 - 1


class AsyncClient(ClientQueries):
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

        Returns:
            The experiment; `note` is what its policy says of its terms.

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
        return replace(converters.experiment(answer.experiment), note=printable(answer.note))

    async def pause(self, experiment: str | Experiment) -> Experiment:
        """Suspend all its runs at their next boundary and start none; `wait(..., until={PAUSED})` waits for that."""
        connection = await self._connection()
        request = experiment_pb2.PauseExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.PauseExperiment(request))
        return converters.experiment(answer.experiment)

    async def resume(self, experiment: str | Experiment) -> Experiment:
        """Go on with a paused experiment."""
        connection = await self._connection()
        request = experiment_pb2.ResumeExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.ResumeExperiment(request))
        return converters.experiment(answer.experiment)

    async def stop(self, experiment: str | Experiment) -> Experiment:
        """End it: terminate all its jobs. The best job's snapshot is kept."""
        connection = await self._connection()
        request = experiment_pb2.StopExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.StopExperiment(request))
        return converters.experiment(answer.experiment)

    async def close_experiment(self, experiment: str | Experiment) -> Experiment:
        """End one that is open for requests as one that has done its work: what was asked and is not trained yet is terminated."""
        connection = await self._connection()
        request = experiment_pb2.CloseExperimentRequest(experiment=id_of(experiment))
        answer = await connection.call(lambda: connection.experiments.CloseExperiment(request))
        return converters.experiment(answer.experiment)

    async def keep_experiment(self, experiment: str | Experiment) -> None:
        """Keep one that is open for requests (`stop.idle`) open: its idle time begins anew.

        Raises:
            Conflict: It has ended.
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
        """Have a configuration trained to a position, beside what the experiment tries by itself.

        Args:
            experiment: Which; its policy must serve requests, as `stage_tree` does.
            hyperparameters: All values of its space.
            position: In its unit, in 1..max_iterations.
            request_id: Names the request: a second one with this id gets the same job. Empty: each call is a new one.

        Returns:
            The job that was made for it. It is COMPLETED at the position, and may be so already: others may have trained the
            same. `hopyard.client` waits for jobs and shows curves as for any other.

        Raises:
            InvalidInput: It does not lie in the space, or there is no such position.
            Conflict: The experiment has ended, its policy serves no requests, or the id stands for another request.
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
        """Have several configurations trained, each to its position, all or none; at most 1,000. See `request`.

        Args:
            experiment: Which.
            wanted: Configurations and positions.
            request_ids: One for each; none: each is a new one.

        Returns:
            Their jobs, in their order.

        Raises:
            InvalidInput: All that is wrong, and with which; or the ids are not as many.
            Conflict: As for `request`.
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
                raise InvalidInput(f"request_ids: must be texts, found {name!r:.80}")
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
            experiment=id_of(experiment),
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
            slots: The most slots that it uses, at least 1. What is above a lower limit its policy gives up, or after a
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
            experiment=id_of(experiment),
            target=target,
            weight=weight,
            slots=slots,
            concurrency=concurrency,
            clear=clear,
            request_id=uuid.uuid4().hex,
        )
        answer = await connection.call(lambda: connection.experiments.UpdateExperiment(request))
        return converters.experiment(answer.experiment)

    async def pause_job(self, experiment: str | Experiment, job: str) -> Job:
        """Suspend one job at its next boundary, and keep it so whatever the policy wants; the experiment goes on without it."""
        connection = await self._connection()
        request = job_manager_pb2.PauseJobRequest(experiment=id_of(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.PauseJob(request))
        return converters.job(answer.job)

    async def resume_job(self, experiment: str | Experiment, job: str) -> Job:
        """Let a job go on that `pause_job` paused: the policy may start it again."""
        connection = await self._connection()
        request = job_manager_pb2.UnpauseJobRequest(experiment=id_of(experiment), job=job)
        answer = await connection.call(lambda: connection.jobs.UnpauseJob(request))
        return converters.job(answer.job)

    async def stop_job(self, experiment: str | Experiment, job: str) -> Job:
        """End one job: a running one at its next boundary, a waiting one at once. What it reported stays."""
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
        from hopyard.client.transfer.export_import import write

        present = await self.get(experiment)
        return await write(self, await self._connection(), present, Path(to) if to is not None else None, snapshots)

    async def import_experiment(self, file: str | Path, name: str | None = None) -> ImportedExperiment:
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
        from hopyard.client.transfer.export_import import read

        return await read(self, await self._connection(), Path(file), name)

    async def register_data(
        self, name: str, partitions: Iterable[DataPartition], *, request_id: str | None = None
    ) -> DataSet:
        """Take partitioned data into the catalog, once each node named has read what it holds; all or nothing.

        Args:
            name: What experiments call it.
            partitions: "train/0", "train/1", ... and "eval/0", ...: each with its replicas (node and absolute path), or with its
                URL, and with that size, hash and examples if they are known.
            request_id: A call that was cut is made again with the same one; None: a new one.

        Raises:
            InvalidInput: What is wrong: a name, a node that is not known, files that are missing, replicas that differ.
            AlreadyExists: The name is taken.
            Conflict: A node that is named is not connected.
        """
        connection = await self._connection()
        request = data_pb2.RegisterDataRequest(
            data=converters.data_set_to_proto(name, partitions), request_id=request_id or uuid.uuid4().hex
        )
        answer = await connection.call(lambda: connection.data.RegisterData(request, timeout=_REGISTER_SECONDS))
        return converters.data_set(answer.data)

    async def drop_data(self, name: str) -> None:
        """Take a data set out of the catalog; its files stay.

        Raises:
            NotFound: There is none of this name.
            Conflict: An experiment that is not over uses it.
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
        """Delete what nobody needs from the store and from the nodes that are connected.

        Args:
            dry_run: Change nothing, only answer what there is.
            older_than: What was written or wanted within so many seconds stays; None: ten minutes.
            foreign: Delete also what the index of a store given by URL does not know, which may be another cluster's.
            idle: Hashes of snapshots on nodes whose agents do not run; the answer says which of them nobody needs.
            for_others: Delete also what finished experiments keep for nothing but that later ones may go on from it.
        """
        connection = await self._connection()
        request = experiment_pb2.CollectGarbageRequest(
            dry_run=dry_run, older_than_seconds=older_than, foreign=foreign, sha256=idle, for_others=for_others
        )
        answer = await connection.call(lambda: connection.experiments.CollectGarbage(request, timeout=_GARBAGE_SECONDS))
        return converters.garbage(answer, dry_run=dry_run)
