"""One experiment event in, effects out: which handler takes it, and whether it is worth a line in the journal."""

from __future__ import annotations

from typing import Any

from hopyard.policy.vocabulary import (
    AllocateJobs,
    Answer,
    AnswerJob,
    AnswerReady,
    Command,
    EndExperiment,
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
from hopyard_engine.core.actions import (
    command_checks,
    experiment_end,
    failures,
    group_results,
    ordered_uploads,
    phases,
    prediction_requests,
    runs,
    store_quota,
)
from hopyard_engine.core.effects import Effect, JobChanged, Noted, Record
from hopyard_engine.core.events import (
    Answered,
    CopiesEvicted,
    DataChanged,
    ExperimentCreated,
    ExperimentEvent,
    Imported,
    JobHeld,
    JobOperated,
    MachineGranted,
    MachineRecalled,
    MemberJoined,
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
    SnapshotsGivenUp,
    SnapshotShipped,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.handlers import commands, lifecycle, node_events, preemption, run_messages
from hopyard_engine.core.state.entities import HOLD, POLICY, GeneratorCall
from hopyard_engine.core.state.experiment import Experiment, Phase
from hopyard_engine.core.state.stream import Stream

CALL_LIMIT = 500
"""Answers of a policy to one event from outside, beside two for each machine and each job from the generator.

A policy that asks again and again, or proposes what cannot be done, would keep the core busy for ever.
"""

REST_SECONDS = 10.0
"""So much time brings rest to a policy that hears of nothing but what it asked for itself: answers of solvers, and its timers."""

CALLS_OF_AN_EVENT = 2
"""Up-calls that an event from outside brings at most, as a rule; what it brings beyond them, such as a message with many reports,
counts for nobody's restlessness."""


def handle(x: Stream, event: ExperimentEvent) -> list[Effect]:
    """Takes one event.

    Returns:
        Its effects in order, the event's own `Record` first; without one, the event was a repetition and changed nothing.
    """
    x.effects = []
    if _is_news(x, event):
        x.now = event.at
        x.emit(Record(x.id, event))
        rests = _rests(x, event)
        _take(x, event)
        if rests:
            x.answers, x.refusal = -max(len(x.calls) - CALLS_OF_AN_EVENT, 0), ""
            x.rested = event.at
        lifecycle.advance(x, event.at)
        x.next_call(event.at)
    effects, x.effects = x.effects, []
    return effects


def _rests(x: Stream, event: ExperimentEvent) -> bool:
    """Whether something happened that the policy has not brought about itself, or some time has passed since."""
    match event:
        case PolicyAnswered() | PolicyFailed() | PolicyProcess() | MachineGranted() | MachineRecalled() | ShareSet():
            return False
        case TimerElapsed():
            own = event.ticket.startswith(POLICY)
        case Answered():
            own = event.ticket.startswith(POLICY) and x.asks[event.ticket].kind != prediction_requests.PREDICT
        case _:
            own = False
    return not own or event.at >= x.rested + REST_SECONDS


def _is_news(x: Stream, event: ExperimentEvent) -> bool:
    """Whether the event is not a repetition of one that was taken."""
    match event:
        case RunMessage():
            return run_messages.is_next(x, event)
        case SnapshotShipped():
            return ordered_uploads.is_awaited(x, event)
        case PolicyAnswered():
            return x.in_flight is not None and x.in_flight[0] == event.answer.number
        case PolicyFailed():
            return x.in_flight is not None and x.in_flight[0] == event.number
        case Answered():
            return event.ticket in x.asks
        case TimerElapsed():
            return event.ticket in x.timers and event.at >= x.timers[event.ticket]
        case Requested():
            asked = x.members.get(event.member or x.id)
            return asked is None or event.ticket not in asked.requested
        case Updated():
            return event.request not in x.requests
        case MemberJoined():
            return event.member not in x.members
        case Imported():
            return event.request not in x.requests
        case DataChanged():
            return x.data is not None and x.data.differs(event.partitions)
        case _:
            return True


def _take(x: Stream, event: ExperimentEvent) -> None:
    match event:
        case RunMessage():
            run_messages.take(x, event)
        case SnapshotShipped():
            ordered_uploads.take(x, event)
        case PolicyAnswered():
            _policy_answered(x, event)
        case PolicyFailed():
            _policy_failed(x, event)
        case PolicyProcess():
            pass  # It stands in the journal.
        case MachineGranted():
            node_events.granted(x, event)
        case MachineRecalled():
            node_events.recalled(x, event)
        case NodeLost():
            node_events.node_lost(x, event)
        case NodeBack():
            node_events.node_back(x, event)
        case NodeDraining():
            node_events.node_draining(x, event)
        case CopiesEvicted():
            node_events.copies_evicted(x, event)
        case SnapshotsGivenUp():
            store_quota.give_up(x, event)
        case DataChanged():
            node_events.data_changed(x, event)
        case Imported():
            node_events.imported(x, event)
        case ShareSet():
            preemption.set_share(x, event)
        case Answered():
            _answered(x, event)
        case TimerElapsed():
            _timer(x, event)
        case Requested():
            _requested(x, event)
        case Operated():
            lifecycle.operate(x, event)
        case JobOperated():
            _operate_job(x, event)
        case JobHeld():
            _hold_job(x, event)
        case Updated():
            lifecycle.update(x, event)
        case MemberJoined():
            lifecycle.join(x, event)
        case ExperimentCreated():
            phases.start_clock(x, x.founder, event.at)
            phases.enter(x, x.founder, Phase.RUNNING, "")


def _policy_answered(x: Stream, event: PolicyAnswered) -> None:
    assert x.in_flight is not None
    _, call, run = x.in_flight
    x.in_flight = None
    answer: Answer = event.answer
    accepted: list[Command] = []
    x.answers += 1
    limit = CALL_LIMIT + 2 * len(x.machines) + 2 * x.generated
    if x.answers > limit:
        last = f"; the last refusal: {x.refusal}" if x.refusal else ""
        _distrust(
            x,
            event.at,
            f"it does not come to rest: {limit} up-calls followed from one event and what it asked for itself{last}",
        )
        return
    for command in answer.commands:
        try:
            if isinstance(command, EndExperiment):
                experiment_end.end_by_policy(x, command, event.at)
            else:
                commands.carry_out(x, command, event.at)
            accepted.append(command)
        except command_checks.RefusedError as refused:
            x.refusal = str(refused)
            x.verdicts.append(Verdict(command, False, x.refusal))
            if not isinstance(refused, command_checks.NotYetError):
                x.wake()
    for command in accepted:
        if isinstance(command, AnswerJob | StartJob) and _adopts(x, command):  # Nobody has looked at those results yet.
            experiment_end.check_best(x, x.jobs[command.job].member, event.at)
    if isinstance(call, IterationFinish) and run is not None:
        if answer.decision is None:
            _distrust(x, event.at, f"the policy gave no decision on job {call.job} at {call.position}")
        else:
            try:
                runs.decide(x, run, call.position, call.at_until, answer.decision)
            except command_checks.RefusedError as refused:
                _distrust(x, event.at, str(refused))
    elif answer.decision is not None:
        x.emit(Noted(x.id, "", f"up-call {answer.number} takes no decision; {answer.decision.kind.value} was ignored"))
    if isinstance(call, AllocateJobs):
        lifecycle.answered_allocation(x, accepted)
    x.demand, x.gang, x.nodes = event.demand, event.gang, event.nodes


def _policy_failed(x: Stream, event: PolicyFailed) -> None:
    assert x.in_flight is not None
    if event.unheard:
        x.take_back_call()
    x.in_flight = None
    _distrust(x, event.at, event.error)


def _adopts(x: Stream, command: AnswerJob | StartJob) -> bool:
    """Whether a job has another experiment's results by a command."""
    source = command.source if isinstance(command, AnswerJob) else (command.from_snapshot or ("",))[0]
    return source in x.earlier or group_results.is_one(x, x.jobs[command.job], source)


def _distrust(x: Stream, at: float, error: str) -> None:
    """Pauses what runs: its policy does not do what it must."""
    lifecycle.pause_all(x, at, f"policy error: {error}")


def _answered(x: Stream, event: Answered) -> None:
    question = x.asks.pop(event.ticket)
    ticket = event.ticket.removeprefix(POLICY)
    if event.ticket.startswith(commands.CREATE):
        _created(x, x.members[question.member], question.payload, event)
    elif question.kind == prediction_requests.PREDICT:
        x.jobs[question.payload["job"]].predictions.pop(event.ticket, None)
        x.call(PredictionReady(ticket, question.payload["job"], event.result, event.error))
    else:
        x.call(AnswerReady(ticket, event.result, event.error))


def _created(x: Stream, member: Experiment, asked: dict[str, Any], event: Answered) -> None:
    # The generator is called in order: an answer shows that what it was told before the question has reached it.
    name, index = asked["job"], asked["after"]
    member.told_generator = max(member.told_generator, index + 1)
    if not event.error:
        member.generator_calls[index] = GeneratorCall("create", name, event.result)
    job = x.jobs.get(name)
    if job is None or job.state is not JobState.CREATING:
        return
    if event.error:
        x.move(job, JobState.FAILED, f"the generator failed: {event.error}")
        experiment_end.begin_end(x, member, Phase.FAILED, f"the generator failed: {event.error}", event.at)
    elif event.result is None:
        member.exhausted = True
        del x.jobs[name], x.open[name]
        x.touched.touch(name)
        x.count(job, -1)
        x.emit(JobChanged(member.id, name, removed=True))
        x.call(GeneratorExhausted(name))
        x.wake()
    else:
        commands.configured(x, job, dict(event.result))


def _timer(x: Stream, event: TimerElapsed) -> None:
    del x.timers[event.ticket]
    if event.ticket.startswith(phases.END_TIMER):
        experiment_end.run_out(x, x.members[event.ticket.removeprefix(phases.END_TIMER)], event.at)
    elif event.ticket.startswith(phases.IDLE_TIMER):
        lifecycle.idle_over(x, x.members[event.ticket.removeprefix(phases.IDLE_TIMER)], event.at)
    elif event.ticket == preemption.DEADLINE:
        x.overdue = True
    elif event.ticket.startswith(HOLD):
        failures.let_go(x, x.jobs.get(event.ticket.removeprefix(HOLD)))
    elif event.ticket.startswith(runs.KILL):
        runs.kill(x, event.ticket.removeprefix(runs.KILL))
    else:
        x.call(TimerFired(event.ticket.removeprefix(POLICY)))


def _requested(x: Stream, event: Requested) -> None:
    job = ""
    if x.settings.requests:
        try:
            job = commands.request(x, event).id
        except command_checks.RefusedError as refused:
            x.emit(Noted(x.id, "", f"refused the request: {refused}"))
            return
    x.members[event.member or x.id].requested[event.ticket] = job
    x.call(RequestMade(event.ticket, event.hyperparameters, event.position, job, event.more))


def _operate_job(x: Stream, event: JobOperated) -> None:
    if isinstance(event.command, TerminateJob) and event.command.job in x.jobs:
        x.jobs[event.command.job].held = False  # Whoever may pause a job may end it.
    try:
        commands.carry_out(x, event.command, event.at)
    except command_checks.RefusedError as refused:
        x.emit(Noted(x.id, getattr(event.command, "job", ""), f"refused {type(event.command).__name__}: {refused}"))
        return
    if event.asks_anew and isinstance(event.command, TerminateJob) and x.jobs[event.command.job].run is None:
        commands.ask_anew(x)


def _hold_job(x: Stream, event: JobHeld) -> None:
    try:
        commands.hold(x, event.job, event.held, event.asks_anew)
    except command_checks.RefusedError as refused:
        x.emit(Noted(x.id, event.job, f"refused {'to pause' if event.held else 'to resume'}: {refused}"))
