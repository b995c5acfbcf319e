"""Pausing, going on, winding up and extending: what happens to an experiment as a whole."""

from __future__ import annotations

from dataclasses import replace

from hopyard.policy.vocabulary import (
    Command,
    ExperimentChange,
    JobState,
    LabelJob,
    ReleaseMachine,
    ReserveMachine,
    RunEndReason,
)
from hopyard_engine.core.actions import (
    deferred_uploads,
    earlier_results,
    eviction,
    experiment_end,
    failures,
    phases,
    runs,
    target,
)
from hopyard_engine.core.effects import (
    DemandChanged,
    ExperimentChanged,
    ExperimentEnded,
    MachineReturned,
    Noted,
    TermsChanged,
    WithdrawQuestion,
)
from hopyard_engine.core.events import MemberJoined, Operated, Updated
from hopyard_engine.core.handlers import preemption
from hopyard_engine.core.state.entities import HOLD, ORIGIN_LOST, POLICY, Job
from hopyard_engine.core.state.experiment import Experiment, Phase
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.types import Settings


def join(stream: Stream, event: MemberJoined) -> None:
    """Another experiment joins the group, which goes on if it was over."""
    over = stream.phase.over
    member = stream.add(event)
    phases.start_clock(stream, member, event.at)
    phases.enter(stream, member, Phase.RUNNING, "")
    stream.unheard = False
    if over:
        phases.revive(stream)
    stream.wake()
    stream.call(ExperimentChange("joined", member.id))


def operate(stream: Stream, event: Operated) -> None:
    """Pause, resume, stop, close or keep; each twice is as good as once, and one that makes no sense now changes nothing."""
    member = stream.members[event.member or stream.id]
    match event.action:
        case "pause" if member.phase is Phase.RUNNING:
            pause(stream, member, event.at, "paused by a person")
        case "resume" if member.phase in (Phase.PAUSED, Phase.PAUSING):
            phases.enter(stream, member, Phase.RUNNING, "")
            stream.unheard = False
            phases.start_clock(stream, member, event.at)
            stream.wake()
            stream.call(ExperimentChange("resumed", member.id))
            experiment_end.check_best(stream, member, event.at)
        case "stop" if not member.phase.over and member.phase is not Phase.ENDING:
            experiment_end.begin_end(stream, member, Phase.STOPPED, "stopped by a person", event.at)
        case "close" if not member.phase.over and member.phase is not Phase.ENDING:
            experiment_end.begin_end(stream, member, Phase.COMPLETED, "closed by its client", event.at)
        case "keep" if member.settings.idle is not None and phases.IDLE_TIMER + member.id in stream.timers:
            stream.set_timer(phases.IDLE_TIMER + member.id, event.at + member.settings.idle)
        case _:
            pass


def pause(stream: Stream, member: Experiment, at: float, reason: str) -> None:
    """Suspends all its runs at their next boundary; PAUSED when all have left their machines and their state is stored."""
    phases.enter(stream, member, Phase.PAUSING, reason)
    phases.stop_clock(stream, member, at)
    for run in phases.runs_of(stream, member):
        runs.end_run(stream, run, RunEndReason.SUSPENDED)
    stream.call(ExperimentChange("paused", member.id))


def pause_all(stream: Stream, at: float, reason: str) -> None:
    """Pauses all experiments of the stream: their policy does not do what it must."""
    for member in stream.running:
        pause(stream, member, at, reason)


def advance(stream: Stream, at: float) -> None:
    """Takes the steps that nothing but the state itself calls for."""
    stream.shed()
    if stream.held <= stream.share:
        stream.overdue = False
        stream.set_timer(preemption.DEADLINE, None)
    elif stream.overdue:
        preemption.preempt(stream)
    _advance_members(stream, at)
    while stream.tidied:
        stream.tidied = False
        eviction.keep_within(stream)
        _advance_members(stream, at)  # A pause or an end may have waited for what was given up.
    if stream.phase.over:
        return
    if (stream.claim, stream.gang, stream.nodes) != (stream.claimed, stream.claimed_gang, stream.claimed_nodes):
        stream.claimed, stream.claimed_gang, stream.claimed_nodes = stream.claim, stream.gang, stream.nodes
        stream.emit(DemandChanged(stream.id, stream.claimed, stream.claimed_gang, stream.claimed_nodes))
    if stream.terms != stream.terms_told:
        stream.terms_told = stream.terms
        stream.emit(TermsChanged(stream.id, *stream.terms))


def _advance_members(stream: Stream, at: float) -> None:
    for member in stream.members.values():
        _advance_member(stream, member, at)


def _advance_member(stream: Stream, member: Experiment, at: float) -> None:
    if member.phase is Phase.PAUSING and not phases.runs_of(stream, member):
        deferred_uploads.wound_up(stream, member)
        if _settled(stream, member):
            phases.enter(stream, member, Phase.PAUSED, member.reason)
    if member.settings.idle is not None:
        _idle(stream, member, member.settings.idle, at)
    elif member.phase is Phase.RUNNING and _nothing_left(stream, member):
        experiment_end.enter_end(stream, member, *_verdict(stream, member), at)
    if member.phase is Phase.ENDING and not phases.runs_of(stream, member):
        if not member.wound_up:
            member.wound_up = True
            _wind_up(stream, member)
        deferred_uploads.wound_up(stream, member)
        if _settled(stream, member) and not _untold(stream, member):  # What is kept must outlive the nodes.
            _finish(stream, member, at)


def _idle(stream: Stream, member: Experiment, seconds: float, at: float) -> None:
    """An experiment that is open for requests ends when it had nothing to do for so long."""
    timer = phases.IDLE_TIMER + member.id
    if member.phase is not Phase.RUNNING or not _nothing_left(stream, member):
        stream.set_timer(timer, None)
    elif timer not in stream.timers:
        stream.set_timer(timer, at + seconds)


def idle_over(stream: Stream, member: Experiment, at: float) -> None:
    """It was idle for its full time, and nobody kept it open."""
    experiment_end.enter_end(
        stream, member, Phase.COMPLETED, f"nothing was asked of it for {member.settings.idle:g} s", at
    )


def _settled(stream: Stream, member: Experiment) -> bool:
    """Whether everything that its jobs saved is in the store, or will never get there."""
    return stream.snapshots.settled_of(lambda job: stream.jobs[job].member is member)


def _untold(stream: Stream, member: Experiment) -> bool:
    """Whether its policy, which may go on with its jobs, has still to hear what became of them."""
    return member.out_of_time and not stream.unheard and (bool(stream.calls) or stream.in_flight is not None)


def _verdict(stream: Stream, member: Experiment) -> tuple[Phase, str]:
    """How an experiment ended that has nothing left to do."""
    jobs = [job for job in stream.jobs.values() if job.member is member]
    if jobs and member.states.get(JobState.FAILED, 0) == len(jobs):
        return Phase.FAILED, f"every job failed, job {jobs[0].id}: {jobs[0].reason}"
    return Phase.COMPLETED, "all jobs ended" if member.all_ended else "the policy has nothing left to do"


def _nothing_left(stream: Stream, member: Experiment) -> bool:
    """Whether an experiment is done: all its jobs ended and it has no more, or the policy of them all wants nothing."""
    if stream.calls or stream.in_flight is not None:
        return False
    if member.jobs_left == 0 and member.all_ended:
        return not any(question.member in ("", member.id) for question in stream.asks.values())
    if stream.live or stream.asks or stream.outdated or member.states.get(JobState.HELD):
        return False
    if any(ticket.startswith((POLICY, HOLD)) for ticket in stream.timers):
        return False
    if stream.demand is not None and stream.demand > len(stream.machines):
        return False  # It waits for machines, such as the second of a gang.
    if stream.data is not None and stream.data.missing() and stream.demand != 0 and not member.all_ended:
        return False  # It waits for a node that holds what is missing.
    offered = stream.at_rest and not stream.attention and sum(m.idle for m in stream.machines.values()) >= stream.gang
    return offered or stream.demand == 0


def answered_allocation(stream: Stream, accepted: list[Command]) -> None:
    """The policy was offered idle machines; when it wanted nothing and nothing else goes on, the experiment is over."""
    stream.at_rest = all(isinstance(command, LabelJob | ReserveMachine | ReleaseMachine) for command in accepted)


def _wind_up(stream: Stream, member: Experiment) -> None:
    """All its runs are over: no job waits for a machine any more, unless the experiment may be extended."""
    assert member.final is not None
    phase, reason = member.final
    jobs = [job for job in stream.jobs.values() if job.member is member]
    for job in jobs:
        if not (job.state.idle or job.state is JobState.HELD):
            continue
        reached = target.ever(stream, job) is not None
        if reached or job.id == member.winner:
            job.position = job.high_water  # Also where a program without snapshots would begin again.
            stream.move(job, JobState.COMPLETED, "reached the target" if reached else reason)
    for job in jobs:
        if (phase is not Phase.COMPLETED or job.lends) and not job.state.ended:
            stream.move(job, JobState.TERMINATED, reason)
        elif member.out_of_time:  # Nobody will answer.
            stream.withdraw_predictions(job)
    # The last one of a group, or of those that train alike, leaves nobody who may go on from the others' jobs. Only what was asked
    # for, and what was lent, is needed no more by that.
    for job in stream.jobs.values() if stream.phase is Phase.ENDING or member.settings.plan else jobs:
        if job.asked or job.lends:
            stream.collect(job)
    for job in jobs:
        if stream.for_others(job):  # What was dropped before them makes them dearer.
            stream.changed(job)


def _finish(stream: Stream, member: Experiment, at: float) -> None:
    """An experiment holds nothing any more. The last one of its group lets go of the machines."""
    assert member.final is not None
    member.ended_at = at
    stream.set_timer(phases.END_TIMER + member.id, None)
    if all(m is member or m.phase.over for m in stream.members.values()):
        _let_all_go(stream)
        phases.enter(stream, member, *member.final)
        stream.emit(ExperimentEnded(stream.id))
    else:
        phases.enter(stream, member, *member.final)
        stream.call(ExperimentChange("ended", member.id))
        stream.wake()
    deferred, member.deferred = member.deferred, []
    for event in deferred:
        _apply(stream, member, event, at)


def _let_all_go(stream: Stream) -> None:
    may_go_on = any(member.out_of_time for member in stream.members.values())
    if not may_go_on:
        stream.calls.clear()
    for ticket in stream.asks:
        stream.emit(WithdrawQuestion(stream.id, ticket))
    stream.asks.clear()
    stream.in_flight = None
    for ticket, due in list(stream.timers.items()):
        stream.set_timer(ticket, None)
        if may_go_on and ticket.startswith(HOLD):
            failures.let_go(stream, stream.jobs.get(ticket.removeprefix(HOLD)))
        elif may_go_on and ticket.startswith(POLICY):
            stream.timers[ticket] = due  # It is set again when an experiment goes on.
    for machine in sorted(stream.machines):
        stream.give_up(machine)
        stream.emit(MachineReturned(stream.id, machine))
    earlier_results.lend_no_more(stream)
    stream.share = 0
    stream.overdue = False


# ------------------------------------------------------------------------------------------------------------------- terms


def update(stream: Stream, event: Updated) -> None:
    """Changes the experiment's terms; a finished one goes on if that gives it something to do.

    One that is ending ends first. One that was taken out of the core after a mistake there stays as it is.
    """
    member = stream.members[event.member or stream.id]
    stream.requests.add(event.request)
    if stream.quarantined:
        stream.emit(Noted(stream.id, "", f"refused Updated: the experiment cannot go on: {stream.reason}"))
    elif member.phase is Phase.ENDING:
        member.deferred.append(event)
    else:
        _apply(stream, member, event, event.at)


def _apply(stream: Stream, member: Experiment, event: Updated, at: float) -> None:
    longer = event.max_position is not None and event.max_position > member.settings.max_position
    member.settings = _changed(member.settings, event)
    member.changed = True
    if stream.settings.scales and (event.concurrency is not None or "concurrency" in event.cleared):
        stream.wake()  # Its demand follows from how many jobs may train.
        stream.outdated = stream.demand is not None
    extended = longer or event.more_jobs > 0 or event.more_seconds > 0
    if longer:
        for job in list(stream.jobs.values()):
            unfinished = job.limit is None and job.position < job.max_position
            if job.member is member and job.state is JobState.COMPLETED and unfinished:
                _reopen(stream, job)
    if extended and member.phase.over:
        over = stream.phase.over
        member.final = member.ended_at = None
        member.winner = ""
        member.wound_up = member.out_of_time = False
        phases.enter(stream, member, Phase.RUNNING, "")
        stream.unheard = False
        if over:
            phases.revive(stream)
    if extended or event.target is not None or "target" in event.cleared:
        if member.running:
            if member.running_since is not None:
                phases.stop_clock(stream, member, at)
            phases.start_clock(stream, member, at)
        stream.wake()
        stream.call(ExperimentChange("extended" if extended else "target", member.id))
    if event.target is not None:
        experiment_end.check_best(stream, member, at)
    stream.emit(ExperimentChanged(member.id))


def _reopen(stream: Stream, job: Job) -> None:
    """A job that had trained to the end goes on from what is left of it."""
    why = "the experiment was extended"
    own = stream.snapshots.newest(job.id)
    source = stream.source_of(job)
    if job.forked and source is None and (stream.snapshot_quota is not None or stream.gave_up):
        stream.emit(
            Noted(stream.id, "", f"job {job.id} stays COMPLETED: what it would go on from was dropped", aloud=True)
        )
        return
    job.position = source[1] if source is not None else 0
    job.kept = None
    if own is None and source is not None:  # It starts from its origin again, which must stay until then.
        job.fork_pin = source
        stream.snapshots.pin(source, job.fork_holder)
    stream.move(job, JobState.SUSPENDED if own is not None else JobState.PENDING, why)
    if job.forked and source is None:
        stream.move(job, JobState.FAILED, ORIGIN_LOST)


def _changed(s: Settings, event: Updated) -> Settings:
    limits = {name: getattr(event, name) for name in ("target", "slots", "concurrency")}
    return replace(
        s,
        **{name: value for name, value in limits.items() if value is not None or name in event.cleared},
        jobs=s.jobs + event.more_jobs,
        max_position=max(event.max_position or 0, s.max_position),
        max_seconds=None if s.max_seconds is None else s.max_seconds + event.more_seconds,
        weight=s.weight if event.weight is None else event.weight,
    )
