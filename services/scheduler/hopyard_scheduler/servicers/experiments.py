"""ExperimentService: creates, changes, shows and watches experiments."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

from hopyard._net.rpc.values import hyperparameters_from_proto
from hopyard.errors import InvalidInput
from hopyard.v1 import experiment_pb2 as pb
from hopyard.v1 import experiment_pb2_grpc
from hopyard_scheduler.converters import EXPERIMENT_STATES, use_to_proto
from hopyard_scheduler.experiments.archive_import import Importer
from hopyard_scheduler.experiments.commands import FrontDoor
from hopyard_scheduler.experiments.job_requests import JobRequest
from hopyard_scheduler.experiments.update_request import UpdateRequest
from hopyard_scheduler.pagination import page
from hopyard_scheduler.storage.garbage_collection import DEFAULT_SECONDS, GarbageCollector

if TYPE_CHECKING:
    import grpc.aio


class ExperimentServicer(experiment_pb2_grpc.ExperimentServiceServicer):
    """Implements ExperimentService on the commands, queries, garbage collector and importer."""

    def __init__(self, door: FrontDoor, garbage: GarbageCollector, importer: Importer) -> None:
        self._door = door
        self._garbage = garbage
        self._importer = importer

    async def CreateExperiment(
        self,
        request: pb.CreateExperimentRequest,
        context: grpc.aio.ServicerContext[pb.CreateExperimentRequest, pb.CreateExperimentResponse],
    ) -> pb.CreateExperimentResponse:
        """Validates, creates and starts an experiment."""
        name, note = await self._door.create(
            request.spec, request.source, request.bundle, request.request_id, request.interpreter
        )
        return pb.CreateExperimentResponse(experiment=await self._door.look.show(name), note=note)

    async def GetExperiment(
        self,
        request: pb.GetExperimentRequest,
        context: grpc.aio.ServicerContext[pb.GetExperimentRequest, pb.GetExperimentResponse],
    ) -> pb.GetExperimentResponse:
        """Returns an experiment."""
        return pb.GetExperimentResponse(experiment=await self._door.look.show(request.experiment))

    async def ListExperiments(
        self,
        request: pb.ListExperimentsRequest,
        context: grpc.aio.ServicerContext[pb.ListExperimentsRequest, pb.ListExperimentsResponse],
    ) -> pb.ListExperimentsResponse:
        """Returns a page of the experiments, newest first, optionally of one state."""
        wanted = EXPERIMENT_STATES.from_proto(request.state) if request.state else None
        found = [e for e in await self._door.look.show_all() if wanted is None or e.state == request.state]
        shown, token = page(found, request.page_size, request.page_token)
        return pb.ListExperimentsResponse(experiments=shown, next_page_token=token)

    async def WatchExperiment(
        self,
        request: pb.WatchExperimentRequest,
        context: grpc.aio.ServicerContext[pb.WatchExperimentRequest, pb.WatchExperimentResponse],
    ) -> AsyncIterator[pb.WatchExperimentResponse]:
        """Streams the present state of an experiment, then every change."""
        async for change in self._door.look.watch(request.experiment):
            yield change

    async def PauseExperiment(
        self,
        request: pb.PauseExperimentRequest,
        context: grpc.aio.ServicerContext[pb.PauseExperimentRequest, pb.PauseExperimentResponse],
    ) -> pb.PauseExperimentResponse:
        """Pauses an experiment and suspends its runs."""
        return pb.PauseExperimentResponse(experiment=await self._operate(request.experiment, "pause"))

    async def ResumeExperiment(
        self,
        request: pb.ResumeExperimentRequest,
        context: grpc.aio.ServicerContext[pb.ResumeExperimentRequest, pb.ResumeExperimentResponse],
    ) -> pb.ResumeExperimentResponse:
        """Resumes an experiment."""
        return pb.ResumeExperimentResponse(experiment=await self._operate(request.experiment, "resume"))

    async def StopExperiment(
        self,
        request: pb.StopExperimentRequest,
        context: grpc.aio.ServicerContext[pb.StopExperimentRequest, pb.StopExperimentResponse],
    ) -> pb.StopExperimentResponse:
        """Stops an experiment."""
        return pb.StopExperimentResponse(experiment=await self._operate(request.experiment, "stop"))

    async def CloseExperiment(
        self,
        request: pb.CloseExperimentRequest,
        context: grpc.aio.ServicerContext[pb.CloseExperimentRequest, pb.CloseExperimentResponse],
    ) -> pb.CloseExperimentResponse:
        """Ends an experiment as COMPLETED; untrained requests are terminated."""
        return pb.CloseExperimentResponse(experiment=await self._operate(request.experiment, "close"))

    async def KeepExperiment(
        self,
        request: pb.KeepExperimentRequest,
        context: grpc.aio.ServicerContext[pb.KeepExperimentRequest, pb.KeepExperimentResponse],
    ) -> pb.KeepExperimentResponse:
        """Restarts the idle time of an experiment that is open for requests."""
        await self._door.keep(request.experiment)
        return pb.KeepExperimentResponse()

    async def ExtendExperiment(
        self,
        request: pb.ExtendExperimentRequest,
        context: grpc.aio.ServicerContext[pb.ExtendExperimentRequest, pb.ExtendExperimentResponse],
    ) -> pb.ExtendExperimentResponse:
        """Extends an experiment by jobs, positions or time."""
        await self._door.extend(
            request.experiment, request.jobs, request.max_iterations, request.seconds, request.request_id
        )
        return pb.ExtendExperimentResponse(experiment=await self._door.look.show(request.experiment))

    async def RequestJobs(
        self,
        request: pb.RequestJobsRequest,
        context: grpc.aio.ServicerContext[pb.RequestJobsRequest, pb.RequestJobsResponse],
    ) -> pb.RequestJobsResponse:
        """Requests configurations, each trained up to a position, as jobs."""
        wanted = [
            JobRequest(hyperparameters_from_proto(each.hyperparameters), each.position, each.request_id)
            for each in request.jobs
        ]
        return pb.RequestJobsResponse(jobs=await self._door.request(request.experiment, wanted))

    async def UpdateExperiment(
        self,
        request: pb.UpdateExperimentRequest,
        context: grpc.aio.ServicerContext[pb.UpdateExperimentRequest, pb.UpdateExperimentResponse],
    ) -> pb.UpdateExperimentResponse:
        """Changes the target, the weight, the slots or the concurrency of an experiment."""
        terms = UpdateRequest(
            target=request.target if request.HasField("target") else None,
            weight=request.weight if request.HasField("weight") else None,
            slots=request.slots if request.HasField("slots") else None,
            concurrency=request.concurrency if request.HasField("concurrency") else None,
            clear=tuple(dict.fromkeys(request.clear)),
            request=request.request_id,
        )
        await self._door.update(request.experiment, terms)
        return pb.UpdateExperimentResponse(experiment=await self._door.look.show(request.experiment))

    async def GetCluster(
        self,
        request: pb.GetClusterRequest,
        context: grpc.aio.ServicerContext[pb.GetClusterRequest, pb.GetClusterResponse],
    ) -> pb.GetClusterResponse:
        """Returns the address of AppStat, and the epoch, version, clock and journal error of the scheduler."""
        return self._door.look.cluster()

    async def CollectGarbage(
        self,
        request: pb.CollectGarbageRequest,
        context: grpc.aio.ServicerContext[pb.CollectGarbageRequest, pb.CollectGarbageResponse],
    ) -> pb.CollectGarbageResponse:
        """Deletes blobs and files that nobody needs, or lists them."""
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
            pb.Garbage(kind=kind, place=place, count=count, size_bytes=size)
            for (kind, place), (count, size) in report.found.items()
        ]
        kept = [
            pb.KeptForOthers(
                experiment=name, count=one.count, size_bytes=one.size, seconds_again=one.seconds, given_up=one.given_up
            )
            for name, one in report.kept.items()
        ]
        store = use_to_proto(report.store) if report.store is not None else None
        return pb.CollectGarbageResponse(
            garbage=garbage, notes=report.notes, unneeded=report.unneeded, kept=kept, store=store
        )

    async def ImportExperiment(
        self,
        request: pb.ImportExperimentRequest,
        context: grpc.aio.ServicerContext[pb.ImportExperimentRequest, pb.ImportExperimentResponse],
    ) -> pb.ImportExperimentResponse:
        """Imports an experiment from a journal that another cluster exported."""
        name, snapshots = await self._importer.take(request.journal, request.id, request.request_id)
        return pb.ImportExperimentResponse(experiment=await self._door.look.show(name), snapshots=snapshots)

    async def _operate(self, name: str, action: Literal["pause", "resume", "stop", "close"]) -> pb.Experiment:
        await self._door.operate(name, action)
        return await self._door.look.show(name)
