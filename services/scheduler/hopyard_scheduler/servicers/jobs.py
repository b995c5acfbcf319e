"""The gRPC service JobManagerService: operations on single jobs, named as in the HyperDrive paper (section 4.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hopyard._net.rpc.enums import JOB_STATES
from hopyard.errors import Conflict, NotFound
from hopyard.policy.vocabulary import Command, ExperimentId, LabelJob, StartJob, SuspendJob, TerminateJob
from hopyard.v1 import experiment_pb2, job_manager_pb2_grpc
from hopyard.v1 import job_manager_pb2 as pb
from hopyard_engine.core.events import JobHeld, JobOperated
from hopyard_engine.core.state.stream import Stream
from hopyard_scheduler.experiments.commands import ExperimentCommands
from hopyard_scheduler.experiments.reload import reloads
from hopyard_scheduler.pagination import page
from hopyard_scheduler.runtime.runtime import Runtime, experiment_of

if TYPE_CHECKING:
    import grpc.aio


class JobManagerServicer(job_manager_pb2_grpc.JobManagerServiceServicer):
    """Implements the gRPC service JobManagerService.

    The operations that change a job return its new state. They raise NotFound if the experiment or the job does not
    exist, and Conflict if the experiment has ended or the present state of the job does not permit the operation.

    Args:
        runtime: Handles the resulting events.
        commands: Loads experiments that are not in memory, and reads experiments and jobs.
    """

    def __init__(self, runtime: Runtime, commands: ExperimentCommands) -> None:
        self._runtime = runtime
        self._commands = commands

    async def GetIdleJob(
        self,
        request: pb.GetIdleJobRequest,
        context: grpc.aio.ServicerContext[pb.GetIdleJobRequest, pb.GetIdleJobResponse],
    ) -> pb.GetIdleJobResponse:
        """Return the first job in the experiment's queue of idle jobs: highest priority, then first in, first out.

        NotFound: the experiment is unknown or finished, or none of its jobs is idle.
        """
        stream, experiment = experiment_of(self._runtime.core, ExperimentId(request.experiment))
        idle = [job for job in stream.idle_jobs() if job.experiment is experiment]
        if not idle:
            raise NotFound(f"experiment {experiment.id} has no idle job")
        return pb.GetIdleJobResponse(job=self._commands.queries.shown_job(stream, idle[0]))

    async def StartJob(
        self,
        request: pb.StartJobRequest,
        context: grpc.aio.ServicerContext[pb.StartJobRequest, pb.StartJobResponse],
    ) -> pb.StartJobResponse:
        """Start an idle job on the given slots, from its newest snapshot or from the beginning, and return it.

        The run ends at the position `until` of the request; 0: the experiment's maximum. NotFound: unknown experiment
        or job. Conflict: the experiment is not RUNNING or trains its maximum number of jobs (`concurrency`); the job is not
        idle, was paused by a person, or must wait after failures; or a slot or `until` cannot be used.
        """
        start = StartJob(request.job, tuple(request.slots), request.until or None)
        return pb.StartJobResponse(job=await self._act(request.experiment, request.job, start))

    async def ResumeJob(
        self,
        request: pb.ResumeJobRequest,
        context: grpc.aio.ServicerContext[pb.ResumeJobRequest, pb.ResumeJobResponse],
    ) -> pb.ResumeJobResponse:
        """Start an idle job from its newest snapshot and return it.

        It works as `StartJob`, but raises Conflict if the job has no snapshot.
        """
        stream, _ = experiment_of(self._runtime.core, ExperimentId(request.experiment))
        if request.job in stream.jobs and stream.source_of(stream.jobs[request.job]) is None:
            raise Conflict(f"job {request.job} has no snapshot to resume from; start it instead")
        start = StartJob(request.job, tuple(request.slots), request.until or None)
        return pb.ResumeJobResponse(job=await self._act(request.experiment, request.job, start))

    async def SuspendJob(
        self,
        request: pb.SuspendJobRequest,
        context: grpc.aio.ServicerContext[pb.SuspendJobRequest, pb.SuspendJobResponse],
    ) -> pb.SuspendJobResponse:
        """Suspend a running job at its next boundary and return it. The policy may start it again.

        NotFound: unknown experiment or job. Conflict: the experiment has ended, or the job has no run.
        """
        return pb.SuspendJobResponse(job=await self._act(request.experiment, request.job, SuspendJob(request.job)))

    async def TerminateJob(
        self,
        request: pb.TerminateJobRequest,
        context: grpc.aio.ServicerContext[pb.TerminateJobRequest, pb.TerminateJobResponse],
    ) -> pb.TerminateJobResponse:
        """Terminate a job and return it; a running job ends at its next boundary.

        NotFound: unknown experiment or job. Conflict: the experiment has ended.
        """
        return pb.TerminateJobResponse(job=await self._act(request.experiment, request.job, TerminateJob(request.job)))

    async def PauseJob(
        self,
        request: pb.PauseJobRequest,
        context: grpc.aio.ServicerContext[pb.PauseJobRequest, pb.PauseJobResponse],
    ) -> pb.PauseJobResponse:
        """Put a job into the state HELD, in which the policy cannot start it, and return it.

        A running job is first suspended at its next boundary. NotFound: unknown experiment or job. Conflict: the
        experiment or the job has ended, or the experiment is ending.
        """
        return pb.PauseJobResponse(job=await self._hold(request.experiment, request.job, True))

    async def UnpauseJob(
        self,
        request: pb.UnpauseJobRequest,
        context: grpc.aio.ServicerContext[pb.UnpauseJobRequest, pb.UnpauseJobResponse],
    ) -> pb.UnpauseJobResponse:
        """Release a HELD job, so that the policy can start it again, and return it.

        NotFound: unknown experiment or job. Conflict: the experiment or the job has ended, or the experiment is ending.
        """
        return pb.UnpauseJobResponse(job=await self._hold(request.experiment, request.job, False))

    async def LabelJob(
        self,
        request: pb.LabelJobRequest,
        context: grpc.aio.ServicerContext[pb.LabelJobRequest, pb.LabelJobResponse],
    ) -> pb.LabelJobResponse:
        """Set the priority of a job and return it. Idle jobs with a higher priority come first in the queue.

        NotFound: unknown experiment or job. Conflict: the experiment has ended, or the priority is NaN.
        """
        label = LabelJob(request.job, request.priority)
        return pb.LabelJobResponse(job=await self._act(request.experiment, request.job, label))

    async def GetJob(
        self,
        request: pb.GetJobRequest,
        context: grpc.aio.ServicerContext[pb.GetJobRequest, pb.GetJobResponse],
    ) -> pb.GetJobResponse:
        """Return a job of an experiment. NotFound: the experiment or the job does not exist."""
        return pb.GetJobResponse(job=await self._commands.queries.job(request.experiment, request.job))

    async def ListJobs(
        self,
        request: pb.ListJobsRequest,
        context: grpc.aio.ServicerContext[pb.ListJobsRequest, pb.ListJobsResponse],
    ) -> pb.ListJobsResponse:
        """Return a page of the jobs of an experiment in order of creation.

        If the request names a state, only jobs in that state are returned. NotFound: the experiment does not exist.
        InvalidInput: the state, the page size or the page token is invalid.
        """
        if request.state:
            JOB_STATES.from_proto(request.state, field="state")
        jobs = [
            j
            for j in await self._commands.queries.jobs(request.experiment)
            if not request.state or j.state == request.state
        ]
        shown, token = page(jobs, request.page_size, request.page_token)
        return pb.ListJobsResponse(jobs=shown, next_page_token=token)

    @reloads
    async def _act(self, name: str, job: str, command: Command) -> experiment_pb2.Job:
        stream = await self._stream(name, job)
        return await self._operate(stream, job, JobOperated(self._runtime.clock(), stream.id, command))

    @reloads
    async def _hold(self, name: str, job: str, held: bool) -> experiment_pb2.Job:
        stream = await self._stream(name, job)
        return await self._operate(stream, job, JobHeld(self._runtime.clock(), stream.id, job, held))

    async def _stream(self, name: str, job: str) -> Stream:
        stream, experiment = await self._commands.loaded(name)
        if job not in stream.jobs or stream.jobs[job].experiment is not experiment:
            raise NotFound(f"experiment {name} has no job {job!r}; hopyard jobs {name} lists them")
        if experiment.state.ended:
            raise Conflict(
                f"experiment {name} is {experiment.state.value}, and none of its jobs trains; run `hopyard extend` to continue it"
            )
        return stream

    async def _operate(self, stream: Stream, job: str, event: JobHeld | JobOperated) -> experiment_pb2.Job:
        refused = await self._runtime.operate(event)
        if refused:
            raise Conflict(refused)
        return self._commands.queries.shown_job(stream, stream.jobs[job])
