"""What the policy (or a person) wants: each command is checked against the core's own state, then carried out or refused."""

from __future__ import annotations

import math

from hopyard.policy.vocabulary import (
    ENDLESS,
    MOST_SECONDS,
    AmendRun,
    AnswerJob,
    Ask,
    BillRun,
    Command,
    CreateJob,
    ForkJob,
    JobCreated,
    JobState,
    KeepSnapshots,
    LabelJob,
    Predict,
    ReleaseMachine,
    ReserveMachine,
    RunEndReason,
    StartJob,
    SuspendJob,
    TerminateJob,
    WakeAt,
)
from hopyard_engine.core.actions import (
    command_checks,
    cost_attribution,
    earlier_results,
    group_results,
    prediction_requests,
    prefix_join,
    runs,
)
from hopyard_engine.core.actions.command_checks import RefusedError
from hopyard_engine.core.events import Requested
from hopyard_engine.core.state.entities import POLICY, EarlierResult, GeneratorCall, Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.snapshot_entries import SnapshotId
from hopyard_engine.core.state.stream import Stream

CREATE = "create/"

CREATE_JOB = "create_job"
"""The kind of questions to generators."""


def carry_out(x: Stream, command: Command, at: float) -> None:
    """Carries out one command, wholly or not at all.

    Raises:
        RefusedError: What stands against it.
    """
    match command:
        case StartJob():
            runs.start(x, command)
        case AmendRun():
            runs.amend(x, command)
        case SuspendJob():
            runs.end_run(x, command_checks.run_of(x, command.job), RunEndReason.SUSPENDED)
        case TerminateJob():
            terminate(x, command_checks.free(command_checks.find_job(x, command.job)), "terminated")
        case CreateJob():
            _create(x, command, at)
        case ForkJob():
            _fork(x, command, at)
        case AnswerJob():
            _answer(x, command)
        case LabelJob():
            _label(x, command)
        case ReserveMachine() | ReleaseMachine():
            _reserve(x, command.machine, isinstance(command, ReserveMachine))
        case Predict():
            _predict(x, command)
        case Ask():
            _ask(x, command)
        case WakeAt():
            _wake_at(x, command)
        case BillRun():
            cost_attribution.bill(x, command)
        case KeepSnapshots():
            _keep_snapshots(x, command)


def _wake_at(x: Stream, command: WakeAt) -> None:
    if not math.isfinite(command.at):
        raise RefusedError(f"a time is a finite number of seconds since the epoch, found {command.at}")
    x.set_timer(POLICY + command.ticket, command.at)


def _keep_snapshots(x: Stream, command: KeepSnapshots) -> None:
    job = command_checks.find_job(x, command.job)
    job.kept = set(command.positions)
    x.collect(job)


def _new(x: Stream, job: str) -> None:
    if job != str(x.ordinals + 1):
        raise RefusedError(f"a new job must be {x.ordinals + 1!r}, found {job!r}")


def _maker(x: Stream, name: str) -> Experiment:
    """The experiment that a new job is made for: the named one, else the one that is furthest behind its weight."""
    if name:
        member = command_checks.find_member(x, name)
    else:
        able = [m for m in x.running if m.jobs_left] or x.running or [x.founder]
        member = command_checks.find_member(x, min(able, key=lambda m: m.generated / m.settings.weight).id)
    if member.jobs_left == 0:
        raise RefusedError(
            "the generator is exhausted"
            if member.exhausted
            else f"the experiment has all its {member.settings.jobs} jobs"
        )
    return member


def _create(x: Stream, command: CreateJob, at: float) -> None:
    _new(x, command.job)
    if command.limit is not None:
        _create_limited(x, command, command.limit, at)
        return
    member = _maker(x, command.experiment)
    job = _add(x, command.job, member, at)
    member.generated += 1
    if command.hyperparameters is None:
        job.generated = True
        x.changed(job)
        told = len(member.generator_calls)
        member.generator_calls.append(GeneratorCall("create", job.id, answered=False))
        x.ask(CREATE + job.id, CREATE_JOB, {"job": job.id, "after": told}, member.id)
    else:
        configured(x, job, dict(command.hyperparameters))


def _create_limited(x: Stream, command: CreateJob, limit: int, at: float) -> None:
    """A job with an end of its own is beside the experiment's: it is none of those that it may have."""
    if command.hyperparameters is None:
        raise RefusedError("a job with a limit of its own needs hyperparameters")
    if not 1 <= limit < ENDLESS:
        raise RefusedError(f"limit must be in 1..{ENDLESS - 1}, found {limit}")
    job = _add(x, command.job, command_checks.find_member(x, command.experiment or x.founder.id), at)
    job.limit = limit
    configured(x, job, dict(command.hyperparameters))


def request(x: Stream, event: Requested) -> Job:
    """Makes the job that a client asks for.

    Raises:
        RefusedError: The experiment is ending.
    """
    job = _add(x, str(x.ordinals + 1), command_checks.find_member(x, event.member or x.id), event.at)
    job.limit = event.position
    job.hyperparameters = dict(event.hyperparameters)
    x.move(job, JobState.PENDING, "a client asked for it")
    return job


def _add(x: Stream, name: str, member: Experiment, at: float) -> Job:
    x.ordinals += 1
    job = x.jobs[name] = x.open[name] = Job(name, x.ordinals, at, member)
    job.story.append(JobState.CREATING.value)
    x.count(job, 1)
    return job


def configured(x: Stream, job: Job, hyperparameters: dict[str, object]) -> None:
    """A job has its configuration and may run."""
    job.hyperparameters = hyperparameters
    x.move(job, JobState.PENDING, "waits for its first machine")
    x.call(JobCreated(job.id))


def _fork(x: Stream, command: ForkJob, at: float) -> None:
    _new(x, command.job)
    member = command_checks.find_member(x, command.experiment or command_checks.find_job(x, command.parent).member.id)
    source = (command.parent, command.position)
    command_checks.values(x, command_checks.snapshot(x, source), command.hyperparameters)
    if command.position >= member.settings.max_position:
        raise RefusedError(
            f"a job forked at {command.position} has nothing to train: {member.settings.max_position} is the end"
        )
    job = _add(x, command.job, member, at)
    x.set_origin(job, source)
    job.fork_pin = source
    job.forked = job.copied = True
    job.position = job.high_water = command.position
    x.snapshots.pin(source, job.fork_holder)
    configured(x, job, dict(command.hyperparameters))


def _answer(x: Stream, command: AnswerJob) -> None:
    job = command_checks.free(command_checks.find_job(x, command.job))
    source = x.earlier.get(command.source) or command_checks.find_job(x, command.source)
    if job.state.ended or job.run is not None:
        raise RefusedError(f"job {job.id!r} is {job.state.value}; only a waiting job can be answered")
    if source is job and _complete_with_its_own(x, job, command):
        return
    if source is job:
        raise RefusedError(f"job {job.id!r} cannot be answered from itself")
    if command.position > job.max_position:
        raise RefusedError(f"job {job.id!r} ends at {job.max_position}, it cannot be answered at {command.position}")
    if source.high_water < command.position:
        raise RefusedError(f"job {command.source!r} has reported up to {source.high_water}, not {command.position}")
    if isinstance(source, EarlierResult):
        _answer_from_earlier(x, job, source, command)
        return
    if source.member is not job.member:
        _answer_from_sibling(x, job, source, command)
        return
    if not command.completes:
        if job.high_water < command.position:
            _follow(x, job, (source.id, command.position))
            job.high_water = command.position
            x.changed(job)
        return
    x.unpin_fork(job)
    _follow(x, job, (source.id, command.position))
    job.forked = False
    job.position = job.high_water = command.position
    x.move(job, JobState.COMPLETED, f"answered from job {source.id} at {command.position}")


def _complete_with_its_own(x: Stream, job: Job, command: AnswerJob) -> bool:
    """Completes a job that has trained to its end and waited for its policy to evaluate it; whether it is one."""
    top = job.max_position
    waited = job.terms.evaluates and command.completes and command.position == job.position >= top
    if waited:
        x.unpin_fork(job)
        x.move(job, JobState.COMPLETED, "trained to its end")
    return waited


def _answer_from_earlier(x: Stream, job: Job, source: EarlierResult, command: AnswerJob) -> None:
    if not command.completes:
        earlier_results.adopt(x, job, source.reports, command.position)
        x.changed(job)
        return
    earlier_results.take_over(x, job, (command.source, command.position))
    x.unpin_fork(job)
    job.position = job.high_water = command.position
    x.move(job, JobState.COMPLETED, f"answered from {command.source} at {command.position}, which was trained earlier")


def _answer_from_sibling(x: Stream, job: Job, source: Job, command: AnswerJob) -> None:
    if not command.completes:
        group_results.adopt(x, job, source, command.position)
        x.changed(job)
        return
    group_results.take_over(x, job, (source.id, command.position))
    x.unpin_fork(job)
    job.position = job.high_water = command.position
    x.move(job, JobState.COMPLETED, f"answered from job {source.id} of {source.member.id} at {command.position}")


def _follow(x: Stream, job: Job, source: SnapshotId) -> None:
    """A job has another's results up to a position."""
    if not prefix_join.rejoin(x, job, source):
        x.set_origin(job, source)
        _rate(x, job)


def _rate(x: Stream, job: Job) -> None:
    """A job's best is the last value that it was answered with."""
    point = next((p for p in reversed(x.curve(job)) if x.settings.metric in p.metrics), None)
    if point is not None:
        job.best = (point.metrics[x.settings.metric], point.position)


def terminate(x: Stream, job: Job, why: str) -> None:
    """Ends a job: a running one at its next boundary, an idle one at once, an ended one stays as it is and lends nothing any more."""
    if job.state.ended:
        if job.lends:
            job.lends = False
            x.collect(job)
        return
    if job.run is not None and job.run.ended is None:
        runs.end_run(x, job.run, RunEndReason.TERMINATED)
    elif job.run is None:
        x.move(job, JobState.TERMINATED, why)


def hold(x: Stream, name: str, held: bool, asks_anew: bool) -> None:
    """A person pauses a job, or lets it go on; each twice is as good as once.

    Raises:
        RefusedError: There is no such job, or it has ended or its experiment does.
    """
    job = command_checks.find_job(x, name)
    command_checks.find_member(x, job.member.id)
    if job.state.ended:
        raise RefusedError(f"job {name!r} is {job.state.value}")
    without_run = job.state is JobState.HELD or (held and job.state.idle)
    if job.held is held:
        return
    job.held = held
    if job.state is JobState.HELD:
        own = x.snapshots.newest(job.id) is not None
        x.move(job, JobState.SUSPENDED if own else JobState.PENDING, "resumed by a person")
        x.outdated = x.demand is not None
    elif held and job.state.idle:
        x.move(job, JobState.HELD, "paused by a person")
    elif held and job.run is not None and job.run.ended is None:
        runs.end_run(x, job.run, RunEndReason.SUSPENDED)
    x.changed(job)
    if asks_anew and without_run:
        ask_anew(x)


def ask_anew(x: Stream) -> None:
    """A person changed what becomes of a job without a run: others may have waited for it, and no end of a run tells of it."""
    x.wake()
    x.outdated = x.demand is not None


def _label(x: Stream, command: LabelJob) -> None:
    job = command_checks.find_job(x, command.job)
    if math.isnan(command.priority):
        raise RefusedError("a priority is a number, found NaN")
    job.priority = command.priority
    x.idle.label(job.id, job.priority)
    x.changed(job)


def _predict(x: Stream, command: Predict) -> None:
    job = command_checks.find_job(x, command.job)
    if found := prediction_requests.obstacle(job, command.parameters):
        raise RefusedError(found)
    ticket = _new_ticket(x, command.ticket)
    x.ask(ticket, prediction_requests.PREDICT, prediction_requests.question(x, job, command.parameters))
    job.predictions[ticket] = None


def _ask(x: Stream, command: Ask) -> None:
    if command.kind in (CREATE_JOB, prediction_requests.PREDICT):
        raise RefusedError(
            f"{command.kind!r} is no solver; there are commands for what generators and predictors are asked"
        )
    if not command.kind:
        raise RefusedError("a question names the solver that it is for; found none")
    if not 0 < command.seconds <= MOST_SECONDS:
        raise RefusedError(f"a solver may think for up to {MOST_SECONDS:g} seconds, found {command.seconds:g}")
    x.ask(_new_ticket(x, command.ticket), command.kind, command.payload, seconds=command.seconds)


def _new_ticket(x: Stream, ticket: str) -> str:
    """A question's name in the core; one that is open is not asked again."""
    if not ticket:
        raise RefusedError("a question has a ticket, by which its answer is known; found none")
    if POLICY + ticket in x.asks:
        raise RefusedError(f"question {ticket!r} waits for its answer already")
    return POLICY + ticket


def _reserve(x: Stream, machine: str, reserved: bool) -> None:
    held = x.machines.get(machine)
    if held is None or not held.idle:
        raise RefusedError(f"machine {machine!r} is not an idle machine of this experiment")
    x.reserve(held, reserved)
    if not reserved:
        x.wake()
