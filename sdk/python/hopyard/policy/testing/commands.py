"""Executes a policy's commands in the virtual cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hopyard.policy.testing.run import VirtualRuns
from hopyard.policy.testing.world import Curve, Generator, Unanswered, VirtualJob, VirtualRun, VirtualWorld
from hopyard.policy.views import ExperimentView, JobView
from hopyard.policy.vocabulary import (
    AmendRun,
    AnswerJob,
    AnswerReady,
    Ask,
    BillRun,
    Call,
    Command,
    CreateJob,
    EndExperiment,
    ForkJob,
    GeneratorExhausted,
    Hyperparameters,
    JobCreated,
    JobState,
    KeepSnapshots,
    LabelJob,
    Predict,
    PredictionReady,
    ReleaseSlot,
    ReserveSlot,
    RunEndReason,
    StartJob,
    SuspendJob,
    TerminateJob,
    TimerFired,
    WakeAt,
)
from hopyard.predictor import Prediction


class Commands(VirtualRuns):
    """The part of `VirtualCluster` that executes the commands of a policy.

    `UpCallView.submit` has already checked each command against the present state, and raised an error for an illegal one.
    """

    def __init__(
        self,
        terms: ExperimentView,
        world: VirtualWorld,
        curve: Curve,
        generator: Generator,
        respond: Callable[[Predict | Ask], object] | None,
    ) -> None:
        super().__init__(terms, world, curve)
        self._generator, self._respond = generator, respond
        self._ordinals = self._made = 0
        self._exhausted = False
        self._asked: set[str] = set()
        self._timers: set[str] = set()

    def _carry_out(self, command: Command) -> None:
        match command:
            case StartJob():
                self._start(self.virtual_jobs[command.job], command)
            case CreateJob():
                if command.limit is None:
                    self.terms = replace(self.terms, jobs_left=self.terms.jobs_left - 1)
                job = self._new_job(command.job)
                job.limit = command.limit
                if command.hyperparameters is None:
                    self._asked.add(job.id)
                    self._after(self._world.delays.create, self._configured, job)
                else:
                    self._created(job, command.hyperparameters)
            case ForkJob():
                job = self._new_job(command.job)
                at = command.position
                job.change(parent=command.parent, fork_position=at, position=at, high_water=at)
                job.inherit(self.virtual_jobs[command.parent], at)
                self._created(job, command.hyperparameters)
            case AnswerJob():
                job = self.virtual_jobs[command.job]
                if command.source != job.id:
                    job.inherit(self.virtual_jobs[command.source], command.position)
                job.change(high_water=max(job.view.high_water, command.position))
                if command.completes:
                    job.change(position=command.position, high_water=command.position, state=JobState.COMPLETED)
            case AmendRun():
                self._amend(self.virtual_jobs[command.job], command)
            case SuspendJob(name) | TerminateJob(name):
                job, ends = self.virtual_jobs[name], isinstance(command, TerminateJob)
                if job.run is not None:
                    self._end(job, job.run, RunEndReason.TERMINATED if ends else RunEndReason.SUSPENDED)
                elif ends and not job.view.state.ended:
                    job.change(state=JobState.TERMINATED)
            case LabelJob():
                self.virtual_jobs[command.job].change(priority=command.priority)
            case ReserveSlot(slot) | ReleaseSlot(slot):
                self.slots[slot].reserved = isinstance(command, ReserveSlot)
                if isinstance(command, ReleaseSlot):
                    self._wake()
            case Predict() | Ask():
                self._asked.add(command.ticket)
                self._after(self._world.delays.answer, self._answered, command)
            case WakeAt():
                self._timers.add(command.ticket)
                self._after(max(command.at - self.now, 0.0), self._fired, command.ticket)
            case BillRun() | KeepSnapshots():
                pass  # Here there is a single experiment, so nothing is billed, and no snapshot must be deleted.
            case EndExperiment():
                self.over = command.reason

    def _new_job(self, name: str) -> VirtualJob:
        self._ordinals += 1
        job = self.virtual_jobs[name] = VirtualJob(JobView(name, JobState.CREATING, ordinal=self._ordinals))
        return job

    def _configured(self, job: VirtualJob) -> None:
        self._asked.discard(job.id)
        hyperparameters = None if self._exhausted else self._generator(self._made)
        if hyperparameters is None:
            self._exhausted = True
            self.terms = replace(self.terms, jobs_left=0)
            del self.virtual_jobs[job.id]
            self._calls.append((GeneratorExhausted(job.id), None))
            self._wake()
            return
        self._made += 1
        if job.view.state is JobState.CREATING:
            self._created(job, hyperparameters)

    def _created(self, job: VirtualJob, hyperparameters: Hyperparameters) -> None:
        job.change(hyperparameters=dict(hyperparameters))
        self._idle(job, job.view.position)
        self._calls.append((JobCreated(job.id), None))

    def _answered(self, question: Predict | Ask) -> None:
        self._asked.discard(question.ticket)
        ticket, result, error = question.ticket, None, ""
        try:
            result = self._response(question)
        except Unanswered as problem:
            error = str(problem)
        ready: Call = AnswerReady(ticket, result, error)
        if isinstance(question, Predict):
            ready = PredictionReady(ticket, question.job, result, error)
        self._calls.append((ready, None))

    def _response(self, question: Predict | Ask) -> object:
        if self._respond is None:
            raise Unanswered("nobody answers here")
        if not isinstance(question, Predict):
            return self._respond(question)
        state = self.virtual_jobs[question.job].view.state
        if state.ended:
            raise Unanswered(f"job {question.job} is {state.value} by now")
        result = self._respond(question)
        if not isinstance(result, Prediction):
            raise TypeError(f"a prediction is answered by a hopyard.predictor.Prediction, found {result!r}")
        return result

    def _fired(self, ticket: str) -> None:
        self._timers.discard(ticket)
        self._calls.append((TimerFired(ticket), None))

    def _amend(self, job: VirtualJob, command: AmendRun) -> None:
        run, moved = job.run, command.until is not None
        assert run is not None
        wanted = [p for p in (command.until, *command.snapshot_at) if p is not None]
        fits = run.trains and all(p > run.position or (p == run.position and run.parked) for p in wanted)
        run.amends.add(command.ticket)
        self._after(self._world.delays.amend, self._amended, job, run, command.ticket, fits, moved, run.position)
        if not fits:
            return
        run.saves |= set(command.snapshot_at)
        if run.position in command.snapshot_at:
            self._save(job, run)
        if command.until is not None:
            run.until = command.until
            if run.held and run.until > run.position:
                self._train(job, run)

    def _amended(self, job: VirtualJob, run: VirtualRun, ticket: str, fits: bool, moved: bool, position: int) -> None:
        if ticket in run.amends:
            run.amends.discard(ticket)
            run.parked = run.parked and not (fits and moved and run.until > run.position)
            self._calls.append((AnswerReady(ticket, {"accepted": fits, "position": position}), None))
