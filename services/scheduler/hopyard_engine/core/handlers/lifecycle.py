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
    prediction_requests,
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


def join(x: Stream, event: MemberJoined) -> None:
    """Another experiment joins the group, which goes on if it was over."""
    over = x.phase.over
    member = x.add(event)
    phases.start_clock(x, member, event.at)
    phases.enter(x, member, Phase.RUNNING, "")
    x.unheard = False
    if over:
        phases.revive(x)
    x.wake()
    x.call(ExperimentChange("joined", member.id))


def operate(x: Stream, event: Operated) -> None:
    """Pause, resume, stop, close or keep; each twice is as good as once, and one that makes no sense now changes nothing."""
    member = x.members[event.member or x.id]
    match event.action:
        case "pause" if member.phase is Phase.RUNNING:
            pause(x, member, event.at, "paused by a person")
        case "resume" if member.phase in (Phase.PAUSED, Phase.PAUSING):
            phases.enter(x, member, Phase.RUNNING, "")
            x.unheard = False
            phases.start_clock(x, member, event.at)
            x.wake()
            x.call(ExperimentChange("resumed", member.id))
            experiment_end.check_best(x, member, event.at)
        case "stop" if not member.phase.over and member.phase is not Phase.ENDING:
            experiment_end.begin_end(x, member, Phase.STOPPED, "stopped by a person", event.at)
        case "close" if not member.phase.over and member.phase is not Phase.ENDING:
            experiment_end.begin_end(x, member, Phase.COMPLETED, "closed by its client", event.at)
        case "keep" if member.settings.idle is not None and phases.IDLE_TIMER + member.id in x.timers:
            x.set_timer(phases.IDLE_TIMER + member.id, event.at + member.settings.idle)
        case _:
            pass


def pause(x: Stream, member: Experiment, at: float, reason: str) -> None:
    """Suspends all its runs at their next boundary; PAUSED when all have left their machines and their state is stored."""
    phases.enter(x, member, Phase.PAUSING, reason)
    phases.stop_clock(x, member, at)
    for run in phases.runs_of(x, member):
        runs.end_run(x, run, RunEndReason.SUSPENDED)
    x.call(ExperimentChange("paused", member.id))


def pause_all(x: Stream, at: float, reason: str) -> None:
    """Pauses all experiments of the stream: their policy does not do what it must."""
    for member in x.running:
        pause(x, member, at, reason)


def advance(x: Stream, at: float) -> None:
    """Takes the steps that nothing but the state itself calls for."""
    x.shed()
    if x.held <= x.share:
        x.overdue = False
        x.set_timer(preemption.DEADLINE, None)
    elif x.overdue:
        preemption.preempt(x)
    _advance_members(x, at)
    while x.tidied:
        x.tidied = False
        eviction.keep_within(x)
        _advance_members(x, at)  # A pause or an end may have waited for what was given up.
    if x.phase.over:
        return
    if (x.claim, x.gang, x.nodes) != (x.claimed, x.claimed_gang, x.claimed_nodes):
        x.claimed, x.claimed_gang, x.claimed_nodes = x.claim, x.gang, x.nodes
        x.emit(DemandChanged(x.id, x.claimed, x.claimed_gang, x.claimed_nodes))
    if x.terms != x.terms_told:
        x.terms_told = x.terms
        x.emit(TermsChanged(x.id, *x.terms))


def _advance_members(x: Stream, at: float) -> None:
    for member in x.members.values():
        _advance_member(x, member, at)


def _advance_member(x: Stream, member: Experiment, at: float) -> None:
    if member.phase is Phase.PAUSING and not phases.runs_of(x, member):
        deferred_uploads.wound_up(x, member)
        if _settled(x, member):
            phases.enter(x, member, Phase.PAUSED, member.reason)
    if member.settings.idle is not None:
        _idle(x, member, member.settings.idle, at)
    elif member.phase is Phase.RUNNING and _nothing_left(x, member):
        experiment_end.enter_end(x, member, *_verdict(x, member), at)
    if member.phase is Phase.ENDING and not phases.runs_of(x, member):
        if not member.wound_up:
            member.wound_up = True
            _wind_up(x, member)
        deferred_uploads.wound_up(x, member)
        if _settled(x, member) and not _untold(x, member):  # What is kept must outlive the nodes.
            _finish(x, member, at)


def _idle(x: Stream, member: Experiment, seconds: float, at: float) -> None:
    """An experiment that is open for requests ends when it had nothing to do for so long."""
    timer = phases.IDLE_TIMER + member.id
    if member.phase is not Phase.RUNNING or not _nothing_left(x, member):
        x.set_timer(timer, None)
    elif timer not in x.timers:
        x.set_timer(timer, at + seconds)


def idle_over(x: Stream, member: Experiment, at: float) -> None:
    """It was idle for its full time, and nobody kept it open."""
    experiment_end.enter_end(x, member, Phase.COMPLETED, f"nothing was asked of it for {member.settings.idle:g} s", at)


def _settled(x: Stream, member: Experiment) -> bool:
    """Whether everything that its jobs saved is in the store, or will never get there."""
    return x.snapshots.settled_of(lambda job: x.jobs[job].member is member)


def _untold(x: Stream, member: Experiment) -> bool:
    """Whether its policy, which may go on with its jobs, has still to hear what became of them."""
    return member.out_of_time and not x.unheard and (bool(x.calls) or x.in_flight is not None)


def _verdict(x: Stream, member: Experiment) -> tuple[Phase, str]:
    """How an experiment ended that has nothing left to do."""
    jobs = [job for job in x.jobs.values() if job.member is member]
    if jobs and member.states.get(JobState.FAILED, 0) == len(jobs):
        return Phase.FAILED, f"every job failed, job {jobs[0].id}: {jobs[0].reason}"
    return Phase.COMPLETED, "all jobs ended" if member.all_ended else "the policy has nothing left to do"


def _nothing_left(x: Stream, member: Experiment) -> bool:
    """Whether an experiment is done: all its jobs ended and it has no more, or the policy of them all wants nothing."""
    if x.calls or x.in_flight is not None:
        return False
    if member.jobs_left == 0 and member.all_ended:
        return not any(question.member in ("", member.id) for question in x.asks.values())
    if x.live or x.asks or x.outdated or member.states.get(JobState.HELD):
        return False
    if any(ticket.startswith((POLICY, HOLD)) for ticket in x.timers):
        return False
    if x.demand is not None and x.demand > len(x.machines):
        return False  # It waits for machines, such as the second of a gang.
    if x.data is not None and x.data.missing() and x.demand != 0 and not member.all_ended:
        return False  # It waits for a node that holds what is missing.
    offered = x.at_rest and not x.attention and sum(m.idle for m in x.machines.values()) >= x.gang
    return offered or x.demand == 0


def answered_allocation(x: Stream, accepted: list[Command]) -> None:
    """The policy was offered idle machines; when it wanted nothing and nothing else goes on, the experiment is over."""
    x.at_rest = all(isinstance(command, LabelJob | ReserveMachine | ReleaseMachine) for command in accepted)


def _wind_up(x: Stream, member: Experiment) -> None:
    """All its runs are over: no job waits for a machine any more, unless the experiment may be extended."""
    assert member.final is not None
    phase, reason = member.final
    jobs = [job for job in x.jobs.values() if job.member is member]
    for job in jobs:
        if not (job.state.idle or job.state is JobState.HELD):
            continue
        reached = target.ever(x, job) is not None
        if reached or job.id == member.winner:
            job.position = job.high_water  # Also where a program without snapshots would begin again.
            x.move(job, JobState.COMPLETED, "reached the target" if reached else reason)
    for job in jobs:
        if (phase is not Phase.COMPLETED or job.lends) and not job.state.ended:
            x.move(job, JobState.TERMINATED, reason)
        elif member.out_of_time:  # Nobody will answer.
            prediction_requests.withdraw(x, job)
    # The last one of a group, or of those that train alike, leaves nobody who may go on from the others' jobs. Only what was asked
    # for, and what was lent, is needed no more by that.
    for job in x.jobs.values() if x.phase is Phase.ENDING or member.settings.plan else jobs:
        if job.asked or job.lends:
            x.collect(job)
    for job in jobs:
        if x.for_others(job):  # What was dropped before them makes them dearer.
            x.changed(job)


def _finish(x: Stream, member: Experiment, at: float) -> None:
    """An experiment holds nothing any more. The last one of its group lets go of the machines."""
    assert member.final is not None
    member.ended_at = at
    x.set_timer(phases.END_TIMER + member.id, None)
    if all(m is member or m.phase.over for m in x.members.values()):
        _let_all_go(x)
        phases.enter(x, member, *member.final)
        x.emit(ExperimentEnded(x.id))
    else:
        phases.enter(x, member, *member.final)
        x.call(ExperimentChange("ended", member.id))
        x.wake()
    deferred, member.deferred = member.deferred, []
    for event in deferred:
        _apply(x, member, event, at)


def _let_all_go(x: Stream) -> None:
    may_go_on = any(member.out_of_time for member in x.members.values())
    if not may_go_on:
        x.calls.clear()
    for ticket in x.asks:
        x.emit(WithdrawQuestion(x.id, ticket))
    x.asks.clear()
    x.in_flight = None
    for ticket, due in list(x.timers.items()):
        x.set_timer(ticket, None)
        if may_go_on and ticket.startswith(HOLD):
            failures.let_go(x, x.jobs.get(ticket.removeprefix(HOLD)))
        elif may_go_on and ticket.startswith(POLICY):
            x.timers[ticket] = due  # It is set again when an experiment goes on.
    for machine in sorted(x.machines):
        x.give_up(machine)
        x.emit(MachineReturned(x.id, machine))
    earlier_results.lend_no_more(x)
    x.share = 0
    x.overdue = False


# ------------------------------------------------------------------------------------------------------------------- terms


def update(x: Stream, event: Updated) -> None:
    """Changes the experiment's terms; a finished one goes on if that gives it something to do.

    One that is ending ends first. One that was taken out of the core after a mistake there stays as it is.
    """
    member = x.members[event.member or x.id]
    x.requests.add(event.request)
    if x.quarantined:
        x.emit(Noted(x.id, "", f"refused Updated: the experiment cannot go on: {x.reason}"))
    elif member.phase is Phase.ENDING:
        member.deferred.append(event)
    else:
        _apply(x, member, event, event.at)


def _apply(x: Stream, member: Experiment, event: Updated, at: float) -> None:
    longer = event.max_position is not None and event.max_position > member.settings.max_position
    member.settings = _changed(member.settings, event)
    member.changed = True
    if x.settings.scales and (event.concurrency is not None or "concurrency" in event.cleared):
        x.wake()  # Its demand follows from how many jobs may train.
        x.outdated = x.demand is not None
    extended = longer or event.more_jobs > 0 or event.more_seconds > 0
    if longer:
        for job in list(x.jobs.values()):
            unfinished = job.limit is None and job.position < job.max_position
            if job.member is member and job.state is JobState.COMPLETED and unfinished:
                _reopen(x, job)
    if extended and member.phase.over:
        over = x.phase.over
        member.final = member.ended_at = None
        member.winner = ""
        member.wound_up = member.out_of_time = False
        phases.enter(x, member, Phase.RUNNING, "")
        x.unheard = False
        if over:
            phases.revive(x)
    if extended or event.target is not None or "target" in event.cleared:
        if member.running:
            if member.running_since is not None:
                phases.stop_clock(x, member, at)
            phases.start_clock(x, member, at)
        x.wake()
        x.call(ExperimentChange("extended" if extended else "target", member.id))
    if event.target is not None:
        experiment_end.check_best(x, member, at)
    x.emit(ExperimentChanged(member.id))


def _reopen(x: Stream, job: Job) -> None:
    """A job that had trained to the end goes on from what is left of it."""
    why = "the experiment was extended"
    own = x.snapshots.newest(job.id)
    source = x.source_of(job)
    if job.forked and source is None and (x.snapshot_quota is not None or x.gave_up):
        x.emit(Noted(x.id, "", f"job {job.id} stays COMPLETED: what it would go on from was dropped", aloud=True))
        return
    job.position = source[1] if source is not None else 0
    job.kept = None
    if own is None and source is not None:  # It starts from its origin again, which must stay until then.
        job.fork_pin = source
        x.snapshots.pin(source, job.fork_holder)
    x.move(job, JobState.SUSPENDED if own is not None else JobState.PENDING, why)
    if job.forked and source is None:
        x.move(job, JobState.FAILED, ORIGIN_LOST)


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
