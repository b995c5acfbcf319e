"""Descriptions of single events in text, for people. A description consists of statements (`EventPart`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from hopyard._common.formatting import count, duration, first_line, hyperparameters, number, size
from hopyard.policy.vocabulary import ENDLESS, ExperimentId, ExperimentState, JobState, ReasonCode, Report, RunEndReason
from hopyard.policy.vocabulary.reasons import explain
from hopyard.predictor.wire import prediction_from_wire
from hopyard_engine.core.actions.prediction_requests import PREDICT
from hopyard_engine.core.effects import Effect, Noted, Refused, Send, Start, UpCall
from hopyard_engine.core.events import (
    Amended,
    Answered,
    ClusterEvent,
    CopiesEvicted,
    DataChanged,
    DeletionCompleted,
    DrainExpired,
    Ended,
    Event,
    ExperimentJoined,
    Imported,
    JobHeld,
    JobOperated,
    JobsRetried,
    NodeBack,
    NodeDrained,
    NodeDraining,
    NodeEvicted,
    NodeExpired,
    NodeForgotten,
    NodeJoined,
    NodeLeaving,
    NodeLost,
    NodeUndrained,
    Operated,
    PolicyAnswered,
    PolicyFailed,
    PolicyProcess,
    Reports,
    Requested,
    RunMessage,
    ShareSet,
    SlotGranted,
    SlotRecalled,
    SlotReserved,
    SnapshotsGivenUp,
    SnapshotShipped,
    SnapshotStored,
    SnapshotTaken,
    Started,
    StoreQuotaSet,
    StreamCreated,
    StreamDeleted,
    TimerElapsed,
    Updated,
)
from hopyard_engine.core.handlers import node_events
from hopyard_engine.core.handlers.commands import CREATE
from hopyard_engine.core.job_ends import shown_end
from hopyard_engine.core.state.entities import Run
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
from hopyard_engine.core.types import EarlierTrial, Measured, Settings
from hopyard_engine.policy_host import answer_text


class EventPart(NamedTuple):
    """One statement of an event's description.

    Attributes:
        job: Id of the job that the statement is about; empty: the whole experiment.
        text: The statement.
    """

    job: str
    text: str


@dataclass(frozen=True, slots=True)
class EventContext:
    """The parts of a stream's state before an event that the description of the event needs.

    Attributes:
        live: Live runs by job id.
        positions: Positions of the live runs by job id.
        states: States of the experiments by id.
        share: Number of slots that the stream was allowed to use.
        call: Description of the up-call in flight; empty: none.
        call_job: Id of the job that the up-call is about; empty: none.
        high_water: Highest position with results of the job that a run message belongs to; 0 for other events.
        ticket_kind: Kind of the question that an `Answered` event belongs to; else empty.
        ticket_job: Id of the job whose prediction an `Answered` event contains; else empty.
        idle: For a `NodeLost` event, the positions of all jobs that have not ended, by job id; for other events empty.
    """

    live: dict[str, Run]
    positions: dict[str, int]
    states: dict[str, ExperimentState]
    share: int
    call: str
    call_job: str
    high_water: int
    ticket_kind: str
    ticket_job: str
    idle: dict[str, int]


def name_of(stream: Stream, experiment: ExperimentId) -> str:
    """Return how a sentence refers to an experiment: "the experiment", with its id if the stream has several."""
    return "the experiment" if len(stream.experiments) == 1 else f"experiment {experiment}"


def before_event(stream: Stream | None, event: Event) -> EventContext:
    """Return the state that the description of `event` needs, before `event` is applied.

    `stream` is None before the first event of a stream. Then all values of the result are empty or 0.
    """
    if stream is None:
        return EventContext({}, {}, {}, 0, "", "", 0, "", "", {})
    call = stream.conversation.in_flight.call if stream.conversation.in_flight is not None else None
    job = stream.jobs.get(event.job) if isinstance(event, RunMessage) else None
    question = stream.asks.get(event.ticket) if isinstance(event, Answered) else None
    return EventContext(
        live=dict(stream.live),
        positions={name: run.position for name, run in stream.live.items()},
        states={experiment.id: experiment.state for experiment in stream.experiments.values()},
        share=stream.share,
        call=answer_text.told(call) if call is not None else "",
        call_job=answer_text.job_of_call(call) if call is not None else "",
        high_water=job.high_water if job is not None else 0,
        ticket_kind=question.kind if question is not None else "",
        ticket_job=question.payload["job"] if question is not None and question.kind == PREDICT else "",
        idle={job.id: job.position for job in stream.open.values()} if isinstance(event, NodeLost) else {},
    )


def _known(earlier: Sequence[EarlierTrial]) -> str:
    return f"; {count(len(earlier), 'earlier trial')} of the same training" if earlier else ""


def sentences(stream: Stream, before: EventContext, event: Event, effects: Sequence[Effect]) -> list[EventPart]:
    """Return the statements that describe an event of a stream, in order.

    Args:
        stream: The stream after the event.
        before: The state before the event.
        event: The event.
        effects: The effects of the event.
    """
    match event:
        case StreamCreated():
            known = _known(event.earlier) + "".join(f"; {text}" for text in _scaling(event.scaling))
            return [EventPart("", f"the experiment was created: {_terms(event.settings)}{known}")]
        case ExperimentJoined():
            known = _known(event.earlier)
            return [EventPart("", f"experiment {event.experiment} joined the group: {_terms(event.settings)}{known}")]
        case Imported():
            came = count(len(event.snapshots), "snapshot")
            return [EventPart("", f"the experiment was imported from another cluster with {came}")]
        case SlotGranted():
            return [EventPart("", f"slot {event.slot} on node {event.node} was granted")]
        case SlotRecalled():
            return [EventPart("", f"slot {event.slot} is recalled for another experiment at the next boundary")]
        case NodeLost():
            lost = _lost_runs(stream, before, f"node {event.node} is lost, so ")
            missing = stream.data.missing() if stream.data is not None else []
            nowhere = [EventPart("", answer_text.partition(one)) for one in missing if event.node in one.homes]
            return [*(lost or [EventPart("", f"node {event.node} is lost")]), *_went_back(stream, before), *nowhere]
        case NodeBack():
            what = (
                f"with {count(len(event.runs), 'run')} and {count(len(event.snapshots), 'snapshot')} of this experiment"
            )
            what += f", without {', '.join(event.gone)}" if event.gone else ""
            lost = _lost_runs(stream, before, f"node {event.node} is back without it: ")
            ship = [EventPart(job, answer_text.ship(event.node, job, position)) for job, position in event.ship]
            unwanted = [key for key in event.runs if key.job in stream.jobs and not node_events.wanted(stream, key)]
            ended = [
                EventPart(key.job, answer_text.unwanted(event.node, key, stream.jobs[key.job].attempt))
                for key in unwanted
            ]
            discarded = [
                EventPart(key.job if key.job in stream.jobs else "", answer_text.discarded(event.node, key))
                for key in event.discarded
            ]
            return [EventPart("", f"node {event.node} is back {what}"), *lost, *ended, *discarded, *ship]
        case NodeDraining():
            never = [
                EventPart(job, f"job {job} does not start there")
                for job in dict.fromkeys(key.job for key in event.unsent)
            ]
            state = "is leaving" if event.leaving else "is drained"
            if event.expired:
                return [
                    EventPart("", f"the drain of node {event.node} reached its deadline: its runs are ended"),
                    *never,
                ]
            return [EventPart("", f"node {event.node} {state}: its runs leave at their next boundary"), *never]
        case DataChanged():
            return [EventPart("", "; ".join(map(answer_text.partition, event.partitions)))]
        case ShareSet():
            if before.share == event.slots:
                return [EventPart("", f"the share is {count(event.slots, 'slot')} as before")]
            return [EventPart("", f"the share changed {before.share} -> {event.slots} slots")]
        case RunMessage():
            return _run_message(stream, before, event, effects)
        case SnapshotShipped():
            return [EventPart(event.job, answer_text.shipped(event))]
        case PolicyAnswered():
            return _answered(stream, before, event, effects)
        case PolicyFailed():
            return [EventPart(before.call_job, _failed(stream, before, event))]
        case PolicyProcess():
            return [EventPart("", _process(event))]
        case Answered():
            return [_outside(before, event)]
        case TimerElapsed():
            return [_timer(stream, event)]
        case Requested():
            wanted = f"{hyperparameters(event.hyperparameters)} trained to {event.position}"
            return [EventPart("", f"a client requested {wanted} ({event.ticket})")]
        case Operated():
            experiment = stream.experiments[event.experiment or stream.founder.id]
            if event.action == "keep":
                return [EventPart("", f"a client keeps {name_of(stream, experiment.id)} open")]
            done = {"pause": "paused", "resume": "resumed", "stop": "stopped", "close": "closed"}[event.action]
            who = "a client" if event.action == "close" else "a person"
            idle = " again, which changed nothing" if experiment.state is before.states[experiment.id] else ""
            return [EventPart("", f"{who} {done} {name_of(stream, experiment.id)}{idle}")]
        case JobOperated():
            job = answer_text.job_of_command(event.command)
            return [EventPart(job, f"a person {answer_text.command(event.command)}{_notes(effects, job)}")]
        case JobHeld():
            done = "paused" if event.held else "resumed"
            return [EventPart(event.job, f"a person {done} job {event.job}{_notes(effects, event.job)}")]
        case JobsRetried():
            jobs = f"job {event.jobs[0]}" if len(event.jobs) == 1 else f"jobs {', '.join(event.jobs)}"
            return [EventPart("", f"a person retried {jobs}{_notes(effects, '')}")]
        case SlotReserved():
            return [EventPart("", f"a client reserved slot {event.slot}{_notes(effects, '')}")]
        case Updated():
            return [EventPart("", _updated(stream, event))]
        case SnapshotsGivenUp():
            return [EventPart("", f"the store needs the space of {count(len(event.snapshots), 'snapshot')}")]
        case NodeJoined() | NodeExpired() | NodeEvicted() | CopiesEvicted() | StoreQuotaSet():
            return [of_cluster(event)]
        case NodeDrained() | NodeUndrained() | DrainExpired() | NodeLeaving() | NodeForgotten():
            return [of_cluster(event)]
        case StreamDeleted() | DeletionCompleted():
            return [of_cluster(event)]
        case _:
            assert_never(event)


def of_cluster(
    event: ClusterEvent | CopiesEvicted,
) -> EventPart:
    """Return the statement that describes a cluster event, or the eviction of copies on a node."""
    match event:
        case NodeJoined():
            slots = ", ".join(slot.id for slot in event.slots) or "no slot"
            return EventPart("", f"node {event.node} joined with {slots} and {count(len(event.runs), 'run')}")
        case NodeExpired():
            return EventPart("", f"node {event.node} was silent beyond its lease and is lost")
        case NodeDrained():
            return EventPart("", f"node {event.node} is drained: its runs are suspended at their next boundary")
        case NodeUndrained():
            return EventPart("", f"node {event.node} is not drained any more")
        case DrainExpired():
            return EventPart("", f"the drain of node {event.node} reached its deadline: its runs are ended")
        case NodeLeaving():
            return EventPart("", f"node {event.node} is leaving: its runs are suspended at their next boundary")
        case NodeForgotten():
            return EventPart("", f"node {event.node} was removed from the list of nodes")
        case NodeEvicted() | CopiesEvicted():
            copies = count(len(event.snapshots), "snapshot")
            return EventPart("", f"node {event.node} deleted its copies of {copies} in the store, to free space")
        case StoreQuotaSet():
            much = f"{event.size} bytes" if event.size is not None else "any number of bytes"
            return EventPart("", f"the snapshots of all experiments may take {much} in the store")
        case StreamDeleted():
            return EventPart("", f"a person deleted {' and '.join(event.experiments)}")
        case DeletionCompleted():
            return EventPart("", f"what the store had of {event.stream} is deleted")
        case _:
            assert_never(event)


def _process(event: PolicyProcess) -> str:
    """Return a text which says that a policy process connected or disconnected.

    If it connected, the text names the number of up-calls that were repeated to it, unless that is 0.
    """
    if not event.here:
        return "the process of the policy disconnected"
    again = f", and got {count(event.again, 'up-call')} again" if event.again else ""
    return f"a process of the policy connected{again}"


def _terms(s: Settings) -> str:
    jobs = count(s.jobs, "job") if s.jobs < ENDLESS else "any number of jobs"
    length = f" of {s.max_position} positions" if s.max_position < ENDLESS else ""
    over = f" over {s.target_over} reports" if s.target_over > 1 else ""
    target = f", target {s.target:g}{over}" if s.target is not None else ""
    limit = f", for {duration(s.max_seconds)}" if s.max_seconds is not None else ""
    return f"{s.mode} {s.metric}{target}, {jobs}{length}{limit}"


def _scaling(known: Sequence[Measured]) -> Iterator[str]:
    """Iterate over texts that describe the training times of earlier experiments, one for each kind of host."""
    for hardware in sorted({one.hardware for one in known}):
        sizes = [one for one in known if one.hardware == hardware]
        told = ", ".join(f"{one.seconds:.3g} s on {one.slots}" for one in sorted(sizes, key=lambda one: one.slots))
        yield f"measured earlier on {hardware}: a unit takes {told}"


def _updated(stream: Stream, event: Updated) -> str:
    changes = [f"{event.more_jobs} more jobs"] if event.more_jobs else []
    changes += [f"{event.max_position} positions"] if event.max_position is not None else []
    changes += [f"{duration(event.more_seconds)} more"] if event.more_seconds else []
    changes += [f"metric {event.metric}"] if event.metric else []
    for name in ("target", "weight", "slots", "concurrency"):
        value = getattr(event, name)
        changes += [f"{name} {value:g}"] if value is not None else [f"no {name}"] if name in event.cleared else []
    whose = "" if len(stream.experiments) == 1 else f" of {name_of(stream, event.experiment or stream.founder.id)}"
    return f"a person changed the terms{whose}: {', '.join(changes) or 'nothing'}"


def _timer(stream: Stream, event: TimerElapsed) -> EventPart:
    match timer_of(event.ticket):
        case EndTimer(experiment):
            return EventPart("", f"the time of {name_of(stream, experiment)} is over")
        case IdleTimer(experiment):
            return EventPart("", f"{name_of(stream, experiment)} got no request during its idle time")
        case ShareTimer():
            return EventPart("", f"the deadline of the smaller share of {count(stream.share, 'slot')} has passed")
        case BackoffTimer(job):
            return EventPart(job, f"job {job} has waited after losses or failures, and may try again")
        case KillTimer(job, attempt):
            return EventPart(job, f"run {attempt} of job {job} did not leave in time, so its processes are ended")
        case PolicyTimer(name):
            return EventPart("", f"the policy's timer {name} elapsed")


def _outside(before: EventContext, event: Answered) -> EventPart:
    if event.ticket.startswith(CREATE):
        job = event.ticket.removeprefix(CREATE)
        if event.error:
            return EventPart(job, f"the generator failed on job {job}: {event.error}")
        if event.result is None:
            return EventPart(job, f"the generator is exhausted: there will be no job {job}")
        return EventPart(job, f"the generator proposed job {job}: {hyperparameters(event.result)}")
    ticket = event.ticket.removeprefix(POLICY)
    if before.ticket_kind == PREDICT:
        what = f"the prediction of job {before.ticket_job} ({ticket})"
        return EventPart(
            before.ticket_job, f"{what} failed: {event.error}" if event.error else f"{what}: {_expected(event)}"
        )
    if event.error:
        return EventPart("", f"the question to solver {before.ticket_kind} ({ticket}) failed: {event.error}")
    said = event.result.get("said") if isinstance(event.result, dict) else None
    told = f": {first_line(said)}" if isinstance(said, str) and said else ""
    return EventPart("", f"solver {before.ticket_kind} answered {ticket}{told}")


def _expected(event: Answered) -> str:
    found = prediction_from_wire(event.result)
    if not found.positions:
        return "it has reached its horizon"
    chance = f", the target with probability {number(found.reaches[-1])}" if found.reaches else ""
    return f"{number(found.mean[-1])} ± {number(found.deviation[-1])} is expected at {found.positions[-1]}{chance}"


def _notes(effects: Sequence[Effect], job: str) -> str:
    notes = [effect for effect in effects if isinstance(effect, Noted | Refused) and effect.job == job]
    found = [str(note.reason) for note in notes if isinstance(note, Refused) or not note.aloud]
    return f" ({'; '.join(found)})" if found else ""


# ------------------------------------------------------------------------------------------------------------------ policy


def _answered(
    stream: Stream, before: EventContext, event: PolicyAnswered, effects: Sequence[Effect]
) -> list[EventPart]:
    refused = {id(v.command): v.reason for v in stream.conversation.verdicts}
    for effect in effects:
        if isinstance(effect, UpCall):
            refused |= {id(v.command): v.reason for v in effect.verdicts}
    starts = {e.run.job: e for e in effects if isinstance(e, Send) and isinstance(e.body, Start) and e.run.rank == 0}
    heard = f"the policy was {before.call}"
    if event.answer.decision is not None:
        heard += f" and decided {answer_text.decision(event.answer.decision)}"
    parts = [EventPart(before.call_job, heard + _notes(effects, ""))]
    for command in event.answer.commands:
        job = answer_text.job_of_command(command)
        text = f"the policy {answer_text.command(command)}"
        if id(command) in refused:
            text += f", refused: {refused[id(command)]}"
        elif (sent := starts.get(job)) is not None:
            assert isinstance(sent.body, Start)
            text += f" (attempt {sent.run.attempt}, {_origin(sent.node, sent.body)})"
        parts.append(EventPart(job, text))
    return parts


def _failed(stream: Stream, before: EventContext, event: PolicyFailed) -> str:
    if event.diverged:
        return "the scheduler restarted and found that the policy decides differently now"
    paused = any(m.state is not before.states.get(m.id) for m in stream.experiments.values())
    said = "" if paused else f": {event.reason}"  # The text of a pause contains the reason.
    return f"the policy was {before.call} and failed{said}"


def _origin(node: str, start: Start) -> str:
    """Return a text that names the snapshot from which a run on `node` starts, and where it is if the node does not have it."""
    if start.snapshot is None:
        return _source(0)
    there = ", ".join(start.snapshot_nodes)
    where = "" if node in start.snapshot_nodes else f" on {there}" if there else " in the store"
    return _source(start.snapshot.position) + where


def _source(position: int) -> str:
    return f"from the snapshot at {position}" if position else "from the start"


# -------------------------------------------------------------------------------------------------------------------- runs


def _run_message(stream: Stream, before: EventContext, event: RunMessage, effects: Sequence[Effect]) -> list[EventPart]:
    name, body = event.job, event.body
    run = f"run {event.attempt} of job {name}" + (f" (rank {event.rank})" if event.rank else "")
    refused = any(isinstance(e, Refused) for e in effects)
    if refused:
        now = stream.jobs[name].attempt
        which = f"the job is at attempt {now}" if now != event.attempt else "that run is over"
        return [
            EventPart(name, f"a late message of {run} was refused ({_body(body, before.high_water, stream)}); {which}")
        ]
    return [EventPart(name, f"{run} {_body(body, before.high_water, stream)}{_notes(effects, name)}")]


def _body(
    body: Started | Reports | Amended | SnapshotTaken | SnapshotStored | Ended, high_water: int, stream: Stream
) -> str:
    match body:
        case Started():
            got = f", {size(body.fetched)} of it from {'the store' if body.from_store else 'another agent'}"
            return f"is up {_source(body.position)}" + (got if body.fetched else "")
        case Reports():
            return "reported " + ", ".join(_report(report, high_water, stream) for report in body.reports)
        case Amended():
            return (
                f"accepted amendment {body.ticket} at {body.position}"
                if body.accepted
                else (f"was already at {body.position}: amendment {body.ticket} came too late")
            )
        case SnapshotTaken():
            return f"saved a snapshot at {body.snapshot.position} ({size(body.snapshot.size)})"
        case SnapshotStored() if body.error:
            return f"could not upload its snapshot at {body.position}: {body.error}"
        case SnapshotStored():
            return f"uploaded its snapshot at {body.position}"
        case Ended():
            saved = ", its state saved" if body.snapshot is not None else ""
            words_ = {RunEndReason.FAILED: "failed", RunEndReason.LOST: "was lost"}.get(body.reason, "left its slot")
            why = f": {first_line(str(body.cause))}" if body.cause is not None else ""
            reason = f" ({body.reason.value}{saved})" if words_ == "left its slot" else ""
            return f"{words_} at {body.position}{reason}{why}"
        case _:
            assert_never(body)


def _report(report: Report, high_water: int, stream: Stream) -> str:
    metric = stream.settings.metric
    names = [metric] if metric in report.metrics else sorted(report.metrics)
    values = ", ".join(f"{name} {number(report.metrics[name])}" for name in names) or "nothing"
    notes = [f"part {report.part}"] if report.part else []
    notes += ["again"] if report.position <= high_water and not report.part else []
    notes += ["it is trained to its end"] if report.finished else ["it waits at its until"] if report.at_until else []
    return f"{report.position}: {values}" + (f" ({', '.join(notes)})" if notes else "")


def _lost_runs(stream: Stream, before: EventContext, why: str) -> list[EventPart]:
    """Return a statement for each run that was lost by an event about its node, such as `NodeLost`.

    Args:
        stream: The stream after the event.
        before: The state before the event.
        why: The beginning of each statement.
    """
    over = [(name, run) for name, run in before.live.items() if stream.live.get(name) is not run]
    return [
        EventPart(name, f"{why}run {run.attempt} of job {name} was lost at {before.positions[name]}")
        for name, run in over
    ]


def _went_back(stream: Stream, before: EventContext) -> list[EventPart]:
    """Return a statement for each job without a run that lost its newest snapshot with a node and must resume at a lower position.

    `stream` is the stream after the loss of the node, `before` the state before it.
    """
    return [
        EventPart(
            name,
            f"job {name} goes back to {f'its snapshot at {to}' if to else 'the start'}: the one at {at} existed only there",
        )
        for name, at in before.idle.items()
        if name not in before.live and (to := stream.jobs[name].position) < at
    ]


def runs_over(stream: Stream, before: EventContext) -> list[EventPart]:
    """Return a statement with the new state of each job whose run an event has closed.

    `stream` is the stream after the event, `before` the state before it.
    """
    parts = []
    for name, run in before.live.items():
        if stream.live.get(name) is run or name not in stream.jobs:
            continue
        job = stream.jobs[name]
        state, reason = shown_end(job)
        text = f"job {name} is {state.value}"
        if state.idle or state is JobState.HELD:
            text += f" and continues {_source(job.position)}"
        quiet = reason is None or reason.code is ReasonCode.RUN_LOST
        parts.append(EventPart(name, text if quiet else f"{text}: {first_line(explain(reason))}"))
    return parts
