"""The gRPC service ExperimentService: creates, changes, lists and watches experiments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from hopyard._net.rpc.values import hyperparameters_from_proto
from hopyard.errors import InvalidInput
from hopyard.v1 import experiment_pb2 as pb
from hopyard.v1 import experiment_pb2_grpc
from hopyard_scheduler.converters import EXPERIMENT_STATES, clamped, use_to_proto
from hopyard_scheduler.experiments.archive_import import Importer
from hopyard_scheduler.experiments.commands import ExperimentCommands
from hopyard_scheduler.experiments.deletion import ExperimentDeletion
from hopyard_scheduler.experiments.job_requests import JobRequest
from hopyard_scheduler.experiments.update_request import UpdateRequest
from hopyard_scheduler.experiments.watchers import Watcher, send_while_read
from hopyard_scheduler.pagination import page
from hopyard_scheduler.storage.garbage_collection import DEFAULT_SECONDS, GarbageCollector

if TYPE_CHECKING:
    import grpc.aio


class ExperimentServicer(experiment_pb2_grpc.ExperimentServiceServicer):
    """Implements the gRPC service ExperimentService.

    Args:
        commands: Creates, changes and reads experiments.
        garbage: Performs garbage collections.
        importer: Imports experiments.
        deletion: Deletes experiments.
    """

    def __init__(
        self,
        commands: ExperimentCommands,
        garbage: GarbageCollector,
        importer: Importer,
        deletion: ExperimentDeletion,
    ) -> None:
        self._deletion = deletion
        self._commands = commands
        self._garbage = garbage
        self._importer = importer

    async def CreateExperiment(
        self,
        request: pb.CreateExperimentRequest,
        context: grpc.aio.ServicerContext[pb.CreateExperimentRequest, pb.CreateExperimentResponse],
    ) -> pb.CreateExperimentResponse:
        """Validate, create and start an experiment. Return it, with a note for people (empty: there is nothing to say).

        A repeated request with the same request id returns the experiment of the first one. InvalidInput: the
        experiment file is invalid. Conflict: an earlier request with this id created a different experiment.
        """
        name, note = await self._commands.create(
            request.spec, request.source, request.bundle, request.request_id, request.interpreter
        )
        return pb.CreateExperimentResponse(experiment=await self._commands.queries.show(name), note=note)

    async def GetExperiment(
        self,
        request: pb.GetExperimentRequest,
        context: grpc.aio.ServicerContext[pb.GetExperimentRequest, pb.GetExperimentResponse],
    ) -> pb.GetExperimentResponse:
        """Return the experiment with the requested id. NotFound: it does not exist."""
        return pb.GetExperimentResponse(experiment=await self._commands.queries.show(request.experiment))

    async def ListExperiments(
        self,
        request: pb.ListExperimentsRequest,
        context: grpc.aio.ServicerContext[pb.ListExperimentsRequest, pb.ListExperimentsResponse],
    ) -> pb.ListExperimentsResponse:
        """Return a page of the experiments, newest first.

        If the request names a state, only experiments in that state are returned. InvalidInput: the state, the page
        size or the page token is invalid.
        """
        wanted = EXPERIMENT_STATES.from_proto(request.state) if request.state else None
        everything = await self._commands.queries.show_all(damaged=True)
        found = [e for e in everything if wanted is None or e.state == request.state]
        shown, token = page(found, request.page_size, request.page_token)
        return pb.ListExperimentsResponse(experiments=shown, next_page_token=token)

    async def WatchExperiment(  # type: ignore[override]  # the stubs only allow generators
        self,
        request: pb.WatchExperimentRequest,
        context: grpc.aio.ServicerContext[pb.WatchExperimentRequest, pb.WatchExperimentResponse],
    ) -> None:
        """Stream the present state of an experiment and its jobs, then the changed states and new reports until the experiment ends.

        A slow reader gets the newest state of a changed experiment or job instead of each intermediate state.

        NotFound: the experiment does not exist. Exhausted: the client reads so slowly that too many reports wait.
        """
        watcher = Watcher()
        changes = self._commands.queries.watch(request.experiment, watcher)
        await send_while_read(changes, context.write, watcher.slow)

    async def PauseExperiment(
        self,
        request: pb.PauseExperimentRequest,
        context: grpc.aio.ServicerContext[pb.PauseExperimentRequest, pb.PauseExperimentResponse],
    ) -> pb.PauseExperimentResponse:
        """Pause an experiment and return it. Its runs are suspended at their next boundary.

        NotFound: the experiment does not exist. Conflict: it has ended.
        """
        return pb.PauseExperimentResponse(experiment=await self._operate(request.experiment, "pause"))

    async def ResumeExperiment(
        self,
        request: pb.ResumeExperimentRequest,
        context: grpc.aio.ServicerContext[pb.ResumeExperimentRequest, pb.ResumeExperimentResponse],
    ) -> pb.ResumeExperimentResponse:
        """Continue a paused experiment and return it. NotFound: the experiment does not exist. Conflict: it has ended."""
        return pb.ResumeExperimentResponse(experiment=await self._operate(request.experiment, "resume"))

    async def StopExperiment(
        self,
        request: pb.StopExperimentRequest,
        context: grpc.aio.ServicerContext[pb.StopExperimentRequest, pb.StopExperimentResponse],
    ) -> pb.StopExperimentResponse:
        """End an experiment as STOPPED, terminate all its jobs, and return it; no effect if it has ended.

        NotFound: the experiment does not exist.
        """
        return pb.StopExperimentResponse(experiment=await self._operate(request.experiment, "stop"))

    async def CloseExperiment(
        self,
        request: pb.CloseExperimentRequest,
        context: grpc.aio.ServicerContext[pb.CloseExperimentRequest, pb.CloseExperimentResponse],
    ) -> pb.CloseExperimentResponse:
        """End an experiment as COMPLETED and return it; no effect if it has ended.

        Requested jobs that are not trained yet are terminated. NotFound: the experiment does not exist.
        """
        return pb.CloseExperimentResponse(experiment=await self._operate(request.experiment, "close"))

    async def KeepExperiment(
        self,
        request: pb.KeepExperimentRequest,
        context: grpc.aio.ServicerContext[pb.KeepExperimentRequest, pb.KeepExperimentResponse],
    ) -> pb.KeepExperimentResponse:
        """Restart the idle time after which an experiment that waits for job requests ends.

        It has no effect on an experiment that does not wait for requests. NotFound: the experiment does not exist.
        Conflict: it has ended or is ending.
        """
        await self._commands.keep(request.experiment)
        return pb.KeepExperimentResponse()

    async def ExtendExperiment(
        self,
        request: pb.ExtendExperimentRequest,
        context: grpc.aio.ServicerContext[pb.ExtendExperimentRequest, pb.ExtendExperimentResponse],
    ) -> pb.ExtendExperimentResponse:
        """Give an experiment, which may have ended, more jobs, positions or time, and return it.

        InvalidInput: nothing is extended, or a value is out of its range. NotFound: the experiment does not exist.
        Conflict: its stream was stopped after an error in the engine (quarantine).
        """
        await self._commands.extend(
            request.experiment, request.jobs, request.max_iterations, request.seconds, request.request_id
        )
        return pb.ExtendExperimentResponse(experiment=await self._commands.queries.show(request.experiment))

    async def RetryJobs(
        self,
        request: pb.RetryJobsRequest,
        context: grpc.aio.ServicerContext[pb.RetryJobsRequest, pb.RetryJobsResponse],
    ) -> pb.RetryJobsResponse:
        """Start the named failed jobs of an experiment again (none named: all), and return the experiment and these jobs.

        An ended experiment continues. NotFound: the experiment does not exist. InvalidInput: there is no idempotency key. Conflict: no
        job has failed, or a named job has not failed or cannot start again; then no job starts.
        """
        jobs = await self._commands.retry(request.experiment, request.jobs, request.request_id)
        return pb.RetryJobsResponse(experiment=await self._commands.queries.show(request.experiment), jobs=jobs)

    async def RequestJobs(
        self,
        request: pb.RequestJobsRequest,
        context: grpc.aio.ServicerContext[pb.RequestJobsRequest, pb.RequestJobsResponse],
    ) -> pb.RequestJobsResponse:
        """Request configurations, each to be trained up to a position, and return one job for each.

        InvalidInput: requests are invalid; none is accepted. NotFound: the experiment does not exist. Conflict: it
        accepts no requests, or a request id was used for another request.
        """
        wanted = [
            JobRequest(hyperparameters_from_proto(each.hyperparameters), each.position, each.request_id)
            for each in request.jobs
        ]
        return pb.RequestJobsResponse(jobs=await self._commands.request(request.experiment, wanted))

    async def UpdateExperiment(
        self,
        request: pb.UpdateExperimentRequest,
        context: grpc.aio.ServicerContext[pb.UpdateExperimentRequest, pb.UpdateExperimentResponse],
    ) -> pb.UpdateExperimentResponse:
        """Change the metric, target, weight, slots or concurrency of an experiment and return it.

        Fields that are absent from the request stay unchanged; `clear` names fields to remove. InvalidInput: a value is
        invalid, or nothing is changed. NotFound: the experiment does not exist. Conflict: the metric cannot change, or its
        stream was stopped after an error in the engine (quarantine).
        """
        terms = UpdateRequest(
            target=request.target if request.HasField("target") else None,
            weight=request.weight if request.HasField("weight") else None,
            slots=request.slots if request.HasField("slots") else None,
            concurrency=request.concurrency if request.HasField("concurrency") else None,
            clear=tuple(dict.fromkeys(request.clear)),
            metric=request.metric,
            request=request.request_id,
        )
        await self._commands.update(request.experiment, terms)
        return pb.UpdateExperimentResponse(experiment=await self._commands.queries.show(request.experiment))

    async def GetCluster(
        self,
        request: pb.GetClusterRequest,
        context: grpc.aio.ServicerContext[pb.GetClusterRequest, pb.GetClusterResponse],
    ) -> pb.GetClusterResponse:
        """Return the address of AppStat, and the scheduler's epoch, version, present time and journal error.

        The time is in seconds since the Unix epoch. The error is empty if the journal works.
        """
        return self._commands.queries.cluster()

    async def DeleteExperiments(
        self,
        request: pb.DeleteExperimentsRequest,
        context: grpc.aio.ServicerContext[pb.DeleteExperimentsRequest, pb.DeleteExperimentsResponse],
    ) -> pb.DeleteExperimentsResponse:
        """Delete experiments that have ended, and return what was deleted; with `dry_run`, only return what would be.

        With `force`, paused experiments are stopped and deleted, too. InvalidInput: no experiment is named, or, without `dry_run`,
        there is no idempotency key. NotFound: an experiment does not exist. Conflict: one has not ended, or a member of its group
        is not named; then nothing is deleted.
        """
        deleted = await self._deletion.delete(
            request.experiments, force=request.force, dry_run=request.dry_run, request=request.request_id
        )
        return pb.DeleteExperimentsResponse(deleted=deleted)

    async def CollectGarbage(
        self,
        request: pb.CollectGarbageRequest,
        context: grpc.aio.ServicerContext[pb.CollectGarbageRequest, pb.CollectGarbageResponse],
    ) -> pb.CollectGarbageResponse:
        """Delete blobs and files that no experiment needs, in the store and on connected nodes; with `dry_run`, only list them.

        What was written or requested less than `older_than_seconds` ago stays.

        InvalidInput: `older_than_seconds` is negative or not finite. Unavailable: AppStat is unavailable.
        """
        older_than = request.older_than_seconds if request.HasField("older_than_seconds") else DEFAULT_SECONDS
        if not 0 <= older_than < math.inf:
            raise InvalidInput(f"older_than_seconds: found {older_than}, allowed are 0 or more")
        report = await self._garbage.collect(
            dry_run=request.dry_run,
            older_than=older_than,
            foreign=request.foreign,
            idle=list(request.sha256),
            for_others=request.for_others,
        )
        garbage = [
            pb.Garbage(kind=kind, place=place, count=clamped(count), size_bytes=clamped(size))
            for (kind, place), (count, size) in report.found.items()
        ]
        kept = [
            pb.KeptForOthers(
                experiment=name,
                count=one.count,
                size_bytes=clamped(one.size),
                seconds_again=one.seconds,
                given_up=one.given_up,
            )
            for name, one in report.kept.items()
        ]
        store = use_to_proto(report.store) if report.store is not None else None
        return pb.CollectGarbageResponse(
            garbage=garbage,
            notes=report.notes,
            unneeded=report.unneeded,
            kept=kept,
            store=store,
            experiments=await self._deletion.storage(),
        )

    async def ImportExperiment(
        self,
        request: pb.ImportExperimentRequest,
        context: grpc.aio.ServicerContext[pb.ImportExperimentRequest, pb.ImportExperimentResponse],
    ) -> pb.ImportExperimentResponse:
        """Import an experiment from a journal that another cluster exported, and return it.

        InvalidInput: the journal is invalid. AlreadyExists: another experiment has the id. Conflict: the experiment was
        neither paused nor finished when it was exported, or its code bundle is not in the store.
        """
        name, snapshots = await self._importer.take(request.journal, request.id, request.request_id)
        return pb.ImportExperimentResponse(experiment=await self._commands.queries.show(name), snapshots=snapshots)

    async def _operate(self, name: str, action: Literal["pause", "resume", "stop", "close"]) -> pb.Experiment:
        await self._commands.operate(name, action)
        return await self._commands.queries.show(name)
