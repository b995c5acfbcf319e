"""Passes each event of a stream to its handler. Repeated events are ignored and not journalled."""

from __future__ import annotations

from typing import Any

from hopyard.policy.vocabulary import (
    AllocateJobs,
    Answer,
    AnswerJob,
    AnswerReady,
    Command,
    EndExperiment,
    ExperimentState,
    GeneratorExhausted,
    IterationFinish,
    JobState,
    PredictionReady,
    RequestMade,
    StartJob,
    TerminateJob,
    TimerFired,
    Verdict,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions import (
    command_checks,
    experiment_end,
    experiment_state,
    failures,
    group_results,
    prediction_requests,
    runs,
)
from hopyard_engine.core.actions.snapshots import ordered_uploads, store_quota
from hopyard_engine.core.effects import Effect, JobChanged, Noted, Record, Refused
from hopyard_engine.core.events import (
    Answered,
    CopiesEvicted,
    DataChanged,
    ExperimentJoined,
    Imported,
    JobHeld,
    JobOperated,
    JobsRetried,
    NodeBack,
    NodeDraining,
    NodeLost,
    Operated,
    PolicyAnswered,
    PolicyFailed,
    PolicyProcess,
    Requested,
    RunMessage,
    ShareSet,
    SlotGranted,
    SlotRecalled,
    SlotReserved,
    SnapshotsGivenUp,
    SnapshotShipped,
    StreamCreated,
    StreamEvent,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.handlers import commands, lifecycle, node_events, preemption, retries, run_messages
from hopyard_engine.core.state.experiment import Experiment, GeneratorCall
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import (
    POLICY,
    BackoffTimer,
    EndTimer,
    IdleTimer,
    KillTimer,
    PolicyTimer,
    ShareTimer,
    timer_of,
)

CALL_LIMIT = 500
"""Maximum number of answers of a policy after one event that it did not cause. Two are added for each slot and each generated job.

The limit stops a policy that causes up-calls endlessly, for example by sending commands that are always refused.
"""

REST_SECONDS = 10.0
"""Minimum seconds between resets of the count of answers by events that the policy caused, such as its timer or a solver's answer."""

CALLS_OF_AN_EVENT = 2
"""Number of up-calls that one event which the policy did not cause normally causes.

If an event causes more, such as a message with many reports, the answers to the excess are not counted.
"""


def handle(stream: Stream, event: StreamEvent) -> list[Effect]:
    """Handle one event of a stream.

    Returns:
        Its effects in order, beginning with the `Record` of the event. Without a `Record`, the event was a repetition and changed
        nothing.

    Raises:
        IllegalTransitionError: An error in the core. The stream's state may be inconsistent.
    """
    stream.effects = []
    if _changes_state(stream, event):
        stream.now = event.at
        stream.emit(Record(stream.id, event))
        rests = _resets_answer_count(stream, event)
        _take(stream, event)
        if rests:
            stream.conversation.rest(event.at, CALLS_OF_AN_EVENT)
        lifecycle.advance(stream, event.at)
        stream.next_call(event.at)
    effects, stream.effects = stream.effects, []
    return effects


def _resets_answer_count(stream: Stream, event: StreamEvent) -> bool:
    """Return whether the event resets the count of the policy's answers.

    The experiments are paused if the count exceeds a limit (`CALL_LIMIT`), because the policy may cause up-calls endlessly. Answers
    of the policy, changes of its process, its slots and its share never reset it. An elapsed timer of the policy and an answer that
    the policy requested from a solver reset it if `REST_SECONDS` have passed since the last reset. All other events reset it.
    """
    match event:
        case PolicyAnswered() | PolicyFailed() | PolicyProcess() | SlotGranted() | SlotRecalled() | ShareSet():
            return False
        case TimerElapsed():
            own = event.ticket.startswith(POLICY)
        case Answered():
            own = event.ticket.startswith(POLICY) and stream.asks[event.ticket].kind != prediction_requests.PREDICT
        case _:
            own = False
    return not own or event.at >= stream.conversation.rested_at + REST_SECONDS


def _changes_state(stream: Stream, event: StreamEvent) -> bool:
    """Return whether the event must be handled. False: it repeats an earlier one, is outdated, or changes nothing.

    Repetitions are recognized by the sequence number of a message, the number of an up-call or upload order, the ticket, or the request
    id.
    """
    match event:
        case RunMessage():
            return run_messages.is_next(stream, event)
        case SnapshotShipped():
            return ordered_uploads.is_awaited(stream, event)
        case PolicyAnswered():
            return stream.conversation.is_answered_by(event.answer.number)
        case PolicyFailed():
            return stream.conversation.is_answered_by(event.number)
        case Answered():
            return event.ticket in stream.asks
        case TimerElapsed():
            return event.ticket in stream.timers and event.at >= stream.timers[event.ticket]
        case Requested():
            asked = stream.experiments.get(event.experiment or stream.founder.id)
            return asked is None or event.ticket not in asked.requested
        case Updated():
            return event.request not in stream.requests
        case JobsRetried():
            return event.request not in stream.requests
        case SlotReserved():
            return stream.reservation(event.request) is None
        case ExperimentJoined():
            return event.experiment not in stream.experiments
        case Imported():
            return event.request not in stream.requests
        case DataChanged():
            return stream.data is not None and stream.data.differs(event.partitions)
        case _:
            return True


def _take(stream: Stream, event: StreamEvent) -> None:
    match event:
        case RunMessage():
            run_messages.take(stream, event)
        case SnapshotShipped():
            ordered_uploads.take(stream, event)
        case PolicyAnswered():
            _policy_answered(stream, event)
        case PolicyFailed():
            _policy_failed(stream, event)
        case PolicyProcess():
            pass  # It is only journalled.
        case SlotGranted():
            node_events.granted(stream, event)
        case SlotRecalled():
            node_events.recalled(stream, event)
        case NodeLost():
            node_events.node_lost(stream, event)
        case NodeBack():
            node_events.node_back(stream, event)
        case NodeDraining():
            node_events.node_draining(stream, event)
        case CopiesEvicted():
            node_events.copies_evicted(stream, event)
        case SnapshotsGivenUp():
            store_quota.give_up(stream, event)
        case DataChanged():
            node_events.data_changed(stream, event)
        case Imported():
            node_events.imported(stream, event)
        case ShareSet():
            preemption.set_share(stream, event)
        case Answered():
            _answered(stream, event)
        case TimerElapsed():
            _timer(stream, event)
        case Requested():
            _requested(stream, event)
        case Operated():
            lifecycle.operate(stream, event)
        case JobOperated():
            _operate_job(stream, event)
        case JobHeld():
            _hold_job(stream, event)
        case JobsRetried():
            retries.retry(stream, event)
        case SlotReserved():
            _reserve_slot(stream, event)
        case Updated():
            lifecycle.update(stream, event)
        case ExperimentJoined():
            lifecycle.join(stream, event)
        case StreamCreated():
            experiment_state.start_clock(stream, stream.founder, event.at)
            experiment_state.enter(stream, stream.founder, ExperimentState.RUNNING, None)


def _policy_answered(stream: Stream, event: PolicyAnswered) -> None:
    conversation = stream.conversation
    _, call, run = conversation.answered()
    answer: Answer = event.answer
    accepted: list[Command] = []
    conversation.answers += 1
    limit = CALL_LIMIT + 2 * len(stream.slots) + 2 * stream.generated
    if conversation.answers > limit:
        restless = Reason.of(ReasonCode.POLICY_RESTLESS, up_calls=limit, refusal=conversation.refusal)
        _pause_all(stream, event.at, restless)
        return
    for command in answer.commands:
        try:
            if isinstance(command, EndExperiment):
                experiment_end.end_by_policy(stream, command, event.at)
            else:
                commands.carry_out(stream, command, event.at)
            accepted.append(command)
        except command_checks.RefusedError as refused:
            conversation.refused(Verdict(command, False, refused.reason))
            if not isinstance(refused, command_checks.NotYetError):
                stream.wake()
    for command in accepted:
        if isinstance(command, AnswerJob | StartJob) and _adopts(
            stream, command
        ):  # These results are new to the experiment.
            experiment_end.check_best(stream, stream.jobs[command.job].experiment, event.at)
    if isinstance(call, IterationFinish) and run is not None:
        if answer.decision is None:
            undecided = Reason.of(ReasonCode.POLICY_UNDECIDED, job=call.job, position=call.position)
            _pause_all(stream, event.at, undecided)
        else:
            try:
                runs.decide(stream, run, call.position, call.at_until, answer.decision)
            except command_checks.RefusedError as refused:
                _pause_all(stream, event.at, refused.reason)
    elif answer.decision is not None:
        code, decision = ReasonCode.DECISION_IGNORED, answer.decision.kind.value
        stream.emit(Noted(stream.id, "", Reason.of(code, up_call=answer.number, decision=decision)))
    if isinstance(call, AllocateJobs):
        lifecycle.answered_allocation(stream, accepted)
    stream.demand, stream.gang, stream.nodes = event.demand, event.gang, event.nodes
    for name, rung, rungs in event.rungs:
        if (job := stream.jobs.get(name)) is not None:
            job.rung = rung, rungs


def _policy_failed(stream: Stream, event: PolicyFailed) -> None:
    if event.unheard:
        stream.conversation.give_up()
    else:
        stream.conversation.answered()
    _pause_all(stream, event.at, event.reason)


def _adopts(stream: Stream, command: AnswerJob | StartJob) -> bool:
    """Return whether a command gives its job results of an earlier experiment, or of another experiment of the group."""
    source = command.source if isinstance(command, AnswerJob) else (command.from_snapshot or ("",))[0]
    return source in stream.earlier or group_results.is_one(stream, stream.jobs[command.job], source)


def _pause_all(stream: Stream, at: float, cause: Reason) -> None:
    """Pause all RUNNING experiments, because the policy failed or gave an invalid answer. `cause` says how.

    `at` is the time of the event in seconds since the Unix epoch.
    """
    lifecycle.pause_all(stream, at, Reason.of(ReasonCode.POLICY_ERROR, cause=cause))


def _answered(stream: Stream, event: Answered) -> None:
    question = stream.asks[event.ticket]
    if event.ticket.startswith(commands.CREATE):
        experiment = stream.experiments[question.experiment]
        if not event.error:
            del stream.asks[event.ticket]
            _created(stream, experiment, question.payload, event)
        elif experiment.state is ExperimentState.ENDING or experiment.state.ended:
            stream.drop_generator_questions(experiment)
        else:
            _generator_failed(stream, experiment, event)
        return
    del stream.asks[event.ticket]
    ticket = event.ticket.removeprefix(POLICY)
    if question.kind == prediction_requests.PREDICT:
        stream.jobs[question.payload["job"]].predictions.pop(event.ticket, None)
        stream.call(PredictionReady(ticket, question.payload["job"], event.result, event.error))
    else:
        stream.call(AnswerReady(ticket, event.result, event.error))


def _generator_failed(stream: Stream, experiment: Experiment, event: Answered) -> None:
    """Pause an experiment if it is RUNNING, because its generator could not answer a question.

    The question stays open, and is repeated with the later ones when a person resumes the experiment: a generator gets its calls in
    the recorded order.
    """
    experiment.generator_failed = True
    if experiment.running:
        failed = Reason.of(ReasonCode.GENERATOR_FAILED, error=event.error, experiment=experiment.id)
        lifecycle.pause(stream, experiment, event.at, failed)


def _created(stream: Stream, experiment: Experiment, asked: dict[str, Any], event: Answered) -> None:
    # The generator is called in order, so an answer shows that all calls before the question have reached it.
    name, index = asked["job"], asked["after"]
    experiment.told_generator = max(experiment.told_generator, index + 1)
    experiment.generator_calls[index] = GeneratorCall("create", name, event.result)
    job = stream.jobs.get(name)
    if job is None or job.state is not JobState.CREATING:
        return
    if event.result is None:
        experiment.exhausted = True
        del stream.jobs[name], stream.open[name]
        stream.touched.touch(name)
        stream.count(job, -1)
        stream.emit(JobChanged(experiment.id, name, removed=True))
        stream.call(GeneratorExhausted(name))
        stream.wake()
    else:
        commands.configured(stream, job, dict(event.result))


def _timer(stream: Stream, event: TimerElapsed) -> None:
    del stream.timers[event.ticket]
    match timer_of(event.ticket):
        case EndTimer(experiment):
            experiment_end.run_out(stream, stream.experiments[experiment], event.at)
        case IdleTimer(experiment):
            lifecycle.idle_over(stream, stream.experiments[experiment], event.at)
        case ShareTimer():
            stream.overdue = True
        case BackoffTimer(job):
            failures.end_backoff(stream, stream.jobs.get(job))
        case KillTimer() as timer:
            runs.kill(stream, timer)
        case PolicyTimer(name):
            stream.call(TimerFired(name))


def _requested(stream: Stream, event: Requested) -> None:
    job = ""
    if stream.settings.requests:
        try:
            job = commands.request(stream, event).id
        except command_checks.RefusedError as refused:
            stream.emit(Refused(stream.id, "", Reason.of(ReasonCode.REQUEST_REFUSED, cause=refused.reason)))
            return
    stream.experiments[event.experiment or stream.founder.id].requested[event.ticket] = job
    stream.call(RequestMade(event.ticket, event.hyperparameters, event.position, job, event.more))


def _operate_job(stream: Stream, event: JobOperated) -> None:
    if isinstance(event.command, TerminateJob) and event.command.job in stream.jobs:
        stream.jobs[event.command.job].held = False  # A person may end a job that a person paused.
    try:
        commands.carry_out(stream, event.command, event.at, by_person=True)
    except command_checks.RefusedError as refused:
        what = type(event.command).__name__
        reason = Reason.of(ReasonCode.COMMAND_REFUSED, command=what, cause=refused.reason)
        stream.emit(Refused(stream.id, getattr(event.command, "job", ""), reason))
        return
    if isinstance(event.command, TerminateJob) and stream.jobs[event.command.job].run is None:
        commands.ask_anew(stream)


def _reserve_slot(stream: Stream, event: SlotReserved) -> None:
    try:
        commands.reserve(stream, event.slot, event.request)
    except command_checks.RefusedError as refused:
        stream.emit(Refused(stream.id, "", Reason.of(ReasonCode.RESERVATION_REFUSED, cause=refused.reason)))


def _hold_job(stream: Stream, event: JobHeld) -> None:
    try:
        commands.hold(stream, event.job, event.held)
    except command_checks.RefusedError as refused:
        code = ReasonCode.PAUSE_REFUSED if event.held else ReasonCode.RESUME_REFUSED
        stream.emit(Refused(stream.id, event.job, Reason.of(code, cause=refused.reason)))
