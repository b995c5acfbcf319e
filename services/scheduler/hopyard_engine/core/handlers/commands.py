"""Commands of the policy and of people. Each is checked against the stream's state, then carried out or refused."""

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
    ReleaseSlot,
    ReserveSlot,
    RunEndReason,
    StartJob,
    SuspendJob,
    TerminateJob,
    WakeAt,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
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
from hopyard_engine.core.state.entities import EarlierResult, GrantedSlot, Job
from hopyard_engine.core.state.experiment import Experiment, GeneratorCall
from hopyard_engine.core.state.snapshot_entries import SnapshotId
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import POLICY, PolicyTimer

CREATE = "create/"

CREATE_JOB = "create_job"
"""The `AskOutside.kind` of a question to a generator."""


def carry_out(stream: Stream, command: Command, at: float, *, by_person: bool = False) -> None:
    """Carry out one command of the policy or of a person completely, or refuse it without a change.

    Args:
        stream: The stream.
        command: The command. `EndExperiment` is handled elsewhere (`experiment_end.end_by_policy`).
        at: Time of the event in seconds since the Unix epoch.
        by_person: Whether a person gave the command; False: the policy.

    Raises:
        RefusedError: The command is refused; the error has the reason.
    """
    match command:
        case StartJob():
            runs.start(stream, command)
        case AmendRun():
            runs.amend(stream, command)
        case SuspendJob():
            runs.end_run(stream, command_checks.run_of(stream, command.job), RunEndReason.SUSPENDED)
        case TerminateJob():
            job = command_checks.free(command_checks.find_job(stream, command.job))
            own = Reason.of(ReasonCode.TERMINATED, position=job.reached or None)
            terminate(stream, job, Reason(ReasonCode.STOPPED_BY_PERSON) if by_person else own)
        case CreateJob():
            _create(stream, command, at)
        case ForkJob():
            _fork(stream, command, at)
        case AnswerJob():
            _answer(stream, command)
        case LabelJob():
            _label(stream, command)
        case ReserveSlot():
            reserve(stream, command.slot)
        case ReleaseSlot():
            _release(stream, command.slot)
        case Predict():
            _predict(stream, command)
        case Ask():
            _ask(stream, command)
        case WakeAt():
            _wake_at(stream, command)
        case BillRun():
            cost_attribution.bill(stream, command)
        case KeepSnapshots():
            _keep_snapshots(stream, command)


def _wake_at(stream: Stream, command: WakeAt) -> None:
    if not math.isfinite(command.at):
        raise RefusedError(Reason.of(ReasonCode.TIME_INVALID, found=str(command.at)))
    stream.set_timer(PolicyTimer(command.ticket), command.at)


def _keep_snapshots(stream: Stream, command: KeepSnapshots) -> None:
    job = command_checks.find_job(stream, command.job)
    job.kept = set(command.positions)
    stream.collect(job)


def _new(stream: Stream, job: str) -> None:
    if job != str(stream.ordinals + 1):
        raise RefusedError(Reason.of(ReasonCode.JOB_NAME_INVALID, needed=stream.ordinals + 1, found=job))


def _maker(stream: Stream, name: str) -> Experiment:
    """Return the experiment that a new job belongs to.

    It is the one with the id `name`. If `name` is empty, it is, among the RUNNING experiments that can create further jobs, the one
    that has created the fewest jobs per unit of weight.

    Raises:
        RefusedError: The experiment is unknown, ENDING or ended, or can create no further job.
    """
    if name:
        experiment = command_checks.find_experiment(stream, name)
    else:
        able = [m for m in stream.running if m.jobs_left] or stream.running or [stream.founder]
        experiment = command_checks.find_experiment(stream, min(able, key=lambda m: m.generated / m.settings.weight).id)
    if experiment.jobs_left == 0:
        if experiment.exhausted:
            raise RefusedError(Reason(ReasonCode.GENERATOR_EXHAUSTED))
        raise RefusedError(Reason.of(ReasonCode.JOBS_EXHAUSTED, jobs=experiment.settings.jobs))
    return experiment


def _create(stream: Stream, command: CreateJob, at: float) -> None:
    _new(stream, command.job)
    if command.limit is not None:
        _create_limited(stream, command, command.limit, at)
        return
    experiment = _maker(stream, command.experiment)
    job = _add(stream, command.job, experiment, at)
    experiment.generated += 1
    if command.hyperparameters is None:
        job.generated = True
        stream.changed(job)
        told = len(experiment.generator_calls)
        experiment.generator_calls.append(GeneratorCall("create", job.id, answered=False))
        stream.ask(CREATE + job.id, CREATE_JOB, {"job": job.id, "after": told}, experiment.id)
    else:
        configured(stream, job, dict(command.hyperparameters))


def _create_limited(stream: Stream, command: CreateJob, limit: int, at: float) -> None:
    """Create a job with its own maximum position `limit` and given hyperparameters. It is not counted in `Experiment.generated`.

    `at` is the time of the event in seconds since the Unix epoch.

    Raises:
        RefusedError: The hyperparameters are missing, the limit is below 1 or is `ENDLESS` (no maximum) or above, or the experiment
            is unknown, ENDING or ended.
    """
    if command.hyperparameters is None:
        raise RefusedError(Reason(ReasonCode.LIMIT_WITHOUT_VALUES))
    if not 1 <= limit < ENDLESS:
        raise RefusedError(Reason.of(ReasonCode.LIMIT_INVALID, most=ENDLESS - 1, found=limit))
    job = _add(stream, command.job, command_checks.find_experiment(stream, command.experiment or stream.founder.id), at)
    job.limit = limit
    configured(stream, job, dict(command.hyperparameters))


def request(stream: Stream, event: Requested) -> Job:
    """Create the job that a client requests, and return it. The requested position is its maximum position.

    A repeated request must not be passed: the caller has recognized it by its ticket.

    Raises:
        RefusedError: The experiment is unknown, ENDING or ended.
    """
    job = _add(
        stream,
        str(stream.ordinals + 1),
        command_checks.find_experiment(stream, event.experiment or stream.founder.id),
        event.at,
    )
    job.limit = event.position
    job.hyperparameters = dict(event.hyperparameters)
    stream.move(job, JobState.PENDING, Reason(ReasonCode.REQUESTED))
    return job


def _add(stream: Stream, name: str, experiment: Experiment, at: float) -> Job:
    stream.ordinals += 1
    job = stream.jobs[name] = stream.open[name] = Job(name, stream.ordinals, at, experiment)
    job.story.append(JobState.CREATING.value)
    stream.count(job, 1)
    return job


def configured(stream: Stream, job: Job, hyperparameters: dict[str, object]) -> None:
    """Set the configuration of a new job, make it PENDING, and queue the `JobCreated` up-call."""
    job.hyperparameters = hyperparameters
    stream.move(job, JobState.PENDING, Reason(ReasonCode.CONFIGURED))
    stream.call(JobCreated(job.id))


def _fork(stream: Stream, command: ForkJob, at: float) -> None:
    _new(stream, command.job)
    experiment = command_checks.find_experiment(
        stream, command.experiment or command_checks.find_job(stream, command.parent).experiment.id
    )
    source = (command.parent, command.position)
    command_checks.values(stream, command_checks.snapshot(stream, source), command.hyperparameters)
    if command.position >= experiment.settings.max_position:
        code, most = ReasonCode.FORK_AT_END, experiment.settings.max_position
        raise RefusedError(Reason.of(code, position=command.position, most=most))
    job = _add(stream, command.job, experiment, at)
    stream.set_origin(job, source)
    job.fork_pin = source
    job.forked = job.copied = True
    job.position = job.high_water = command.position
    stream.snapshots.pin(source, job.fork_holder)
    configured(stream, job, dict(command.hyperparameters))


def _answer(stream: Stream, command: AnswerJob) -> None:
    job = command_checks.free(command_checks.find_job(stream, command.job))
    source = stream.earlier.get(command.source) or command_checks.find_job(stream, command.source)
    if job.state.ended or job.run is not None:
        raise RefusedError(Reason.of(ReasonCode.JOB_NOT_WAITING, job=job.id, state=job.state.value))
    if source is job and _complete_with_its_own(stream, job, command):
        return
    if source is job:
        raise RefusedError(Reason.of(ReasonCode.ANSWERED_FROM_ITSELF, job=job.id))
    if command.position > job.max_position:
        code, most = ReasonCode.ANSWERED_BEYOND_END, job.max_position
        raise RefusedError(Reason.of(code, job=job.id, most=most, position=command.position))
    if source.high_water < command.position:
        code, reported = ReasonCode.SOURCE_TOO_SHORT, source.high_water
        raise RefusedError(Reason.of(code, job=command.source, reported=reported, position=command.position))
    if isinstance(source, EarlierResult):
        _answer_from_earlier(stream, job, source, command)
        return
    if source.experiment is not job.experiment:
        _answer_from_sibling(stream, job, source, command)
        return
    if not command.completes:
        if job.high_water < command.position:
            _follow(stream, job, (source.id, command.position))
            job.high_water = command.position
            stream.changed(job)
        return
    stream.unpin_fork(job)
    _follow(stream, job, (source.id, command.position))
    job.forked = False
    job.position = job.high_water = command.position
    why = Reason.of(ReasonCode.ANSWERED, source=source.id, position=command.position)
    stream.move(job, JobState.COMPLETED, why)


def _complete_with_its_own(stream: Stream, job: Job, command: AnswerJob) -> bool:
    """Complete a job that has trained to its end and waits until its policy has evaluated it.

    The command must order the completion of the job (`AnswerJob.completes`) and name the position that the job has reached.

    Returns:
        Whether the job was completed. False if the job does not wait for its evaluation, or the command does not meet this condition.
        Then nothing has changed.
    """
    top = job.max_position
    waited = job.terms.evaluates and command.completes and command.position == job.position >= top
    if waited:
        stream.unpin_fork(job)
        stream.move(job, JobState.COMPLETED, Reason(ReasonCode.TRAINED_TO_END))
    return waited


def _answer_from_earlier(stream: Stream, job: Job, source: EarlierResult, command: AnswerJob) -> None:
    if not command.completes:
        earlier_results.adopt(stream, job, source.reports, command.position)
        stream.changed(job)
        return
    earlier_results.take_over(stream, job, (command.source, command.position))
    stream.unpin_fork(job)
    job.position = job.high_water = command.position
    why = Reason.of(ReasonCode.ANSWERED_FROM_EARLIER, trial=command.source, position=command.position)
    stream.move(job, JobState.COMPLETED, why)


def _answer_from_sibling(stream: Stream, job: Job, source: Job, command: AnswerJob) -> None:
    if not command.completes:
        group_results.adopt(stream, job, source, command.position)
        stream.changed(job)
        return
    group_results.take_over(stream, job, (source.id, command.position))
    stream.unpin_fork(job)
    job.position = job.high_water = command.position
    code, experiment = ReasonCode.ANSWERED, source.experiment.id
    why = Reason.of(code, source=source.id, experiment=experiment, position=command.position)
    stream.move(job, JobState.COMPLETED, why)


def _follow(stream: Stream, job: Job, source: SnapshotId) -> None:
    """Give a job the results of another job of the same experiment.

    The job refers to the other job by `Job.origin`. The results are copied instead if the other job has itself continued this job's
    training (`prefix_join`).

    Args:
        stream: The stream of both jobs.
        job: The job.
        source: (id of the other job, position up to and including which `job` gets its results).
    """
    if not prefix_join.rejoin(stream, job, source):
        stream.set_origin(job, source)
        _rate(stream, job)


def _rate(stream: Stream, job: Job) -> None:
    """Set a job's best report to the one at the highest position that has the experiment's metric. Earlier reports are not compared.

    To be called when the job has got results of another job. If no report has the metric, the best report does not change.
    """
    point = next((p for p in reversed(stream.curve(job)) if stream.settings.metric in p.metrics), None)
    if point is not None:
        job.best = (point.metrics[stream.settings.metric], point.position)


def terminate(stream: Stream, job: Job, why: Reason) -> None:
    """End a job: at the next boundary if it has a run, else immediately.

    `why` is recorded as the reason of the state TERMINATED.

    If the job has already ended, its snapshots are no longer kept for other experiments of the group.
    """
    if job.state.ended:
        if job.lends:
            job.lends = False
            stream.collect(job)
        return
    if job.run is not None and job.run.ended is None:
        runs.end_run(stream, job.run, RunEndReason.TERMINATED, why)
    elif job.run is None:
        stream.move(job, JobState.TERMINATED, why)


def hold(stream: Stream, name: str, held: bool) -> None:
    """Pause or resume a job for a person. A repeated command has no effect.

    An idle job becomes HELD when it is paused. If a paused job has a run, the run is suspended at its next boundary, and the job
    becomes HELD when the run has ended. A resumed job becomes SUSPENDED if it has a snapshot, else PENDING.

    Args:
        stream: The stream.
        name: Id of the job.
        held: Whether to pause the job; False resumes it.

    Raises:
        RefusedError: The job is unknown or has ended, or its experiment is ENDING or has ended.
    """
    job = command_checks.find_job(stream, name)
    command_checks.find_experiment(stream, job.experiment.id)
    if job.state.ended:
        raise RefusedError(Reason.of(ReasonCode.JOB_ENDED, job=name, state=job.state.value))
    without_run = job.state is JobState.HELD or (held and job.state.idle)
    if job.held is held:
        return
    job.held = held
    if job.state is JobState.HELD:
        own = stream.snapshots.newest(job.id) is not None
        resumed = Reason(ReasonCode.RESUMED_BY_PERSON)
        stream.move(job, JobState.SUSPENDED if own else JobState.PENDING, resumed)
        stream.conversation.demand_outdated = stream.demand is not None
    elif held and job.state.idle:
        stream.move(job, JobState.HELD, Reason(ReasonCode.PAUSED_BY_PERSON))
    elif held and job.run is not None and job.run.ended is None:
        runs.end_run(stream, job.run, RunEndReason.SUSPENDED, displaces=True)
    stream.changed(job)
    if without_run:
        ask_anew(stream)


def ask_anew(stream: Stream) -> None:
    """Make a new `AllocateJobs` up-call due after a person changed a job without a run.

    Other jobs may have waited for that job, and no `RunEnd` up-call informs the policy.
    """
    stream.wake()
    stream.conversation.demand_outdated = stream.demand is not None


def _label(stream: Stream, command: LabelJob) -> None:
    job = command_checks.find_job(stream, command.job)
    if math.isnan(command.priority):
        raise RefusedError(Reason(ReasonCode.PRIORITY_INVALID))
    job.priority = command.priority
    stream.idle.label(job.id, job.priority)
    stream.changed(job)


def _predict(stream: Stream, command: Predict) -> None:
    job = command_checks.find_job(stream, command.job)
    if found := prediction_requests.obstacle(job, command.parameters):
        raise RefusedError(found)
    ticket = _new_ticket(stream, command.ticket)
    stream.ask(ticket, prediction_requests.PREDICT, prediction_requests.question(stream, job, command.parameters))
    job.predictions[ticket] = None


def _ask(stream: Stream, command: Ask) -> None:
    if command.kind in (CREATE_JOB, prediction_requests.PREDICT):
        raise RefusedError(Reason.of(ReasonCode.SOLVER_INVALID, solver=command.kind))
    if not command.kind:
        raise RefusedError(Reason(ReasonCode.SOLVER_MISSING))
    if not 0 < command.seconds <= MOST_SECONDS:
        raise RefusedError(Reason.of(ReasonCode.SOLVER_TIME_INVALID, most=MOST_SECONDS, found=command.seconds))
    stream.ask(_new_ticket(stream, command.ticket), command.kind, command.payload, seconds=command.seconds)


def _new_ticket(stream: Stream, ticket: str) -> str:
    """Return the internal ticket of a policy's question. `ticket` is the one that the policy chose.

    Raises:
        RefusedError: The ticket is empty, or another question with this ticket is unanswered.
    """
    if not ticket:
        raise RefusedError(Reason(ReasonCode.TICKET_MISSING))
    if POLICY + ticket in stream.asks:
        raise RefusedError(Reason.of(ReasonCode.TICKET_IN_USE, ticket=ticket))
    return POLICY + ticket


def reserve(stream: Stream, slot: str, request: str = "") -> None:
    """Reserve an idle slot. `request` is the id of the client's request; empty: the policy reserves the slot.

    Raises:
        RefusedError: The stream has no such slot, or it is not idle.
    """
    stream.reserve(_idle_slot(stream, slot), request)


def _release(stream: Stream, slot: str) -> None:
    stream.release(_idle_slot(stream, slot))
    stream.wake()


def _idle_slot(stream: Stream, slot: str) -> GrantedSlot:
    held = stream.slots.get(slot)
    if held is None or not held.idle:
        raise RefusedError(Reason.of(ReasonCode.SLOT_NOT_IDLE, slot=slot))
    return held
