"""Pausing, ending, extending and sharing: what happens to an experiment as a whole."""

from __future__ import annotations

import math
from dataclasses import replace

from hopyard.policy.vocabulary import (
    Command,
    ExperimentChange,
    JobState,
    LabelJob,
    ReleaseMachine,
    ReserveMachine,
    RunEndReason,
    RunMode,
    ShareChange,
)
from hopyard_scheduler.core import commands
from hopyard_scheduler.core.effects import (
    DemandChanged,
    ExperimentChanged,
    ExperimentEnded,
    ExperimentRevived,
    MachineReturned,
    Noted,
    TermsChanged,
)
from hopyard_scheduler.core.events import Operated, Settings, ShareSet, Updated
from hopyard_scheduler.core.experiment import Experiment, Phase
from hopyard_scheduler.core.model import HOLD, ORIGIN_LOST, Job, Run

END_TIMER = "core/end"
SHARE_TIMER = "core/share"


def enter(x: Experiment, phase: Phase, reason: str) -> None:
    """Moves the experiment to a phase."""
    x.phase = phase
    x.reason = reason
    x.emit(ExperimentChanged(x.id))


def start_clock(x: Experiment, at: float) -> None:
    """Counts the experiment's time from now on, and sets its end."""
    x.running_since = at
    if x.settings.max_seconds is not None:
        x.set_timer(END_TIMER, at + max(x.settings.max_seconds - x.spent, 0.0))


def stop_clock(x: Experiment, at: float) -> None:
    """Stops counting the experiment's time."""
    x.spent = x.running_seconds(at)
    x.running_since = None
    x.set_timer(END_TIMER, None)


def operate(x: Experiment, event: Operated) -> None:
    """Pause, resume or stop; each twice is as good as once, and one that makes no sense now changes nothing."""
    match event.action:
        case "pause" if x.phase is Phase.RUNNING:
            pause(x, event.at, "paused by a person")
        case "resume" if x.phase in (Phase.PAUSED, Phase.PAUSING):
            enter(x, Phase.RUNNING, "")
            start_clock(x, event.at)
            x.wake()
            x.call(ExperimentChange("resumed"))
            check_best(x, event.at)
        case "stop" if not x.phase.over and x.phase is not Phase.ENDING:
            begin_end(x, Phase.STOPPED, "stopped by a person", event.at)
        case _:
            pass


def pause(x: Experiment, at: float, reason: str) -> None:
    """Suspends all runs at their next boundary; PAUSED when all have left their machines and their state is stored."""
    enter(x, Phase.PAUSING, reason)
    stop_clock(x, at)
    for run in list(x.live.values()):
        commands.end_run(x, run, RunEndReason.SUSPENDED)
    x.call(ExperimentChange("paused"))


def check_target(x: Experiment, job: Job, position: int, value: float, at: float) -> None:
    """Ends the experiment when a job reaches the target; that job is saved and completed, the others are terminated."""
    target = x.settings.target
    if target is None or not math.isfinite(value) or x.phase is not Phase.RUNNING:
        return
    if x.sign(value) >= x.sign(target):
        reason = f"job {job.id} reached the target {target:g} with {value:g} at {position}"
        begin_end(x, Phase.COMPLETED, reason, at, job)


def check_best(x: Experiment, at: float) -> None:
    """Ends the experiment if its best result reaches the target already: the target was moved, or it was paused then."""
    if x.best is not None:
        job, position, value = x.best
        check_target(x, x.jobs[job], position, value, at)


def begin_end(x: Experiment, phase: Phase, reason: str, at: float, winner: Job | None = None) -> None:
    """Lets nothing new begin and ends all runs; `advance` finishes when they are gone."""
    if x.running_since is not None:
        stop_clock(x, at)
    x.final = (phase, reason)
    enter(x, Phase.ENDING, reason)
    for run in list(x.live.values()):
        keep = winner is not None and run.job == winner.id
        if keep and run.mode is RunMode.EVALUATE:
            continue  # It ends by itself, and has nothing to save.
        commands.end_run(x, run, RunEndReason.SUSPENDED if keep else RunEndReason.TERMINATED)
    for job in list(x.jobs.values()):
        if job.run is None and not job.state.ended and job is not winner:
            x.move(job, JobState.TERMINATED, reason)


def advance(x: Experiment, at: float) -> None:
    """Takes the steps that nothing but the state itself calls for."""
    x.shed()
    if x.held <= x.share:
        x.overdue = False
        x.set_timer(SHARE_TIMER, None)
    elif x.overdue:
        _preempt(x)
    if x.phase is Phase.PAUSING and not x.live and x.snapshots.settled:
        enter(x, Phase.PAUSED, x.reason)
    if x.phase is Phase.RUNNING and _nothing_left(x):
        x.final = _verdict(x)
        stop_clock(x, at)
        enter(x, Phase.ENDING, x.final[1])
    if x.phase is Phase.ENDING and not x.live:
        if not x.wound_up:
            x.wound_up = True
            _wind_up(x)
        if x.snapshots.settled:  # What is kept must outlive the nodes.
            _finish(x, at)
    if x.claim != x.claimed and not x.phase.over:
        x.claimed = x.claim
        x.emit(DemandChanged(x.id, x.claimed))


def _verdict(x: Experiment) -> tuple[Phase, str]:
    """How an experiment ended that has nothing left to do."""
    if x.jobs and x.states.get(JobState.FAILED, 0) == len(x.jobs):
        first = next(iter(x.jobs.values()))
        return Phase.FAILED, f"every job failed, job {first.id}: {first.reason}"
    return Phase.COMPLETED, "all jobs ended" if _all_ended(x) else "the policy has nothing left to do"


def _all_ended(x: Experiment) -> bool:
    return not any(count for state, count in x.states.items() if not state.ended)


def _nothing_left(x: Experiment) -> bool:
    if x.live or x.calls or x.in_flight is not None or x.asks or x.outdated:
        return False
    if _all_ended(x) and x.jobs_left == 0:
        return True
    if any(ticket.startswith((commands.POLICY, HOLD)) for ticket in x.timers):
        return False
    if x.demand is not None and x.demand > len(x.machines):
        return False  # It waits for machines, such as the second of a gang.
    offered = x.at_rest and not x.attention and any(m.idle for m in x.machines.values())
    return offered or x.demand == 0


def answered_allocation(x: Experiment, accepted: list[Command]) -> None:
    """The policy was offered idle machines; when it wanted nothing and nothing else goes on, the experiment is over."""
    x.at_rest = all(isinstance(command, LabelJob | ReserveMachine | ReleaseMachine) for command in accepted)


def _wind_up(x: Experiment) -> None:
    """All runs are over: no job waits for a machine any more, unless the experiment may be extended."""
    assert x.final is not None
    phase, reason = x.final
    _complete_winner(x)
    if phase is not Phase.COMPLETED:
        for job in list(x.jobs.values()):
            if not job.state.ended:
                x.move(job, JobState.TERMINATED, reason)
    for job in x.jobs.values():
        x.collect(job)


def _finish(x: Experiment, at: float) -> None:
    assert x.final is not None
    phase, reason = x.final
    x.calls.clear()
    x.asks.clear()
    x.asked_after.clear()
    x.in_flight = None
    for ticket in list(x.timers):
        x.set_timer(ticket, None)
    for machine in sorted(x.machines):
        x.give_up(machine)
        x.emit(MachineReturned(x.id, machine))
    x.share = 0
    x.overdue = False
    x.ended_at = at
    enter(x, phase, reason)
    x.emit(ExperimentEnded(x.id))
    deferred, x.deferred = x.deferred, []
    for event in deferred:
        _apply(x, event, at)


def _complete_winner(x: Experiment) -> None:
    target = x.settings.target
    for job in list(x.jobs.values()):
        reached = target is not None and job.best is not None and x.sign(job.best[0]) >= x.sign(target)
        if reached and job.state.idle:
            x.move(job, JobState.COMPLETED, "reached the target")


# -------------------------------------------------------------------------------------------------------- terms and shares


def update(x: Experiment, event: Updated) -> None:
    """Changes the experiment's terms; a finished one goes on if that gives it something to do.

    One that is ending ends first. One that was taken out of the core after a mistake there stays as it is.
    """
    x.requests.add(event.request)
    if x.quarantined:
        x.emit(Noted(x.id, "", f"refused Updated: the experiment cannot go on: {x.reason}"))
    elif x.phase is Phase.ENDING:
        x.deferred.append(event)
    else:
        _apply(x, event, event.at)


def _apply(x: Experiment, event: Updated, at: float) -> None:
    settings = x.settings
    longer = event.max_position is not None and event.max_position > settings.max_position
    x.settings = _changed(x, event)
    extended = longer or event.more_jobs > 0 or event.more_seconds > 0
    if event.weight is not None or event.slots is not None:
        x.emit(TermsChanged(x.id, x.settings.weight, x.settings.slots))
    if longer:
        for job in list(x.jobs.values()):
            if job.state is JobState.COMPLETED and (job.origin is None or job.forked):
                _reopen(x, job)
    if extended and x.phase.over:
        x.final = x.ended_at = x.demand = x.claimed = None
        x.wound_up = False
        enter(x, Phase.RUNNING, "")
        x.emit(ExperimentRevived(x.id))
    if extended or event.target is not None:
        if x.phase is Phase.RUNNING:
            if x.running_since is not None:
                stop_clock(x, at)
            start_clock(x, at)
        x.wake()
        x.call(ExperimentChange("extended" if extended else "target"))
    if event.target is not None:
        check_best(x, at)
    x.emit(ExperimentChanged(x.id))


def _reopen(x: Experiment, job: Job) -> None:
    """A job that had trained to the end goes on from what is left of it."""
    why = "the experiment was extended"
    own = x.snapshots.newest(job.id)
    source = x.source_of(job)
    job.position = source[1] if source is not None else 0
    if own is None and source is not None:  # It starts from its origin again, which must stay until then.
        job.fork_pin = source
        x.snapshots.pin(source, job.fork_holder)
    x.move(job, JobState.SUSPENDED if own is not None else JobState.PENDING, why)
    if job.forked and source is None:
        x.move(job, JobState.FAILED, ORIGIN_LOST)


def _changed(x: Experiment, event: Updated) -> Settings:
    s = x.settings
    return replace(
        s,
        jobs=s.jobs + event.more_jobs,
        max_position=max(event.max_position or 0, s.max_position),
        max_seconds=None if s.max_seconds is None else s.max_seconds + event.more_seconds,
        target=s.target if event.target is None else event.target,
        weight=s.weight if event.weight is None else event.weight,
        slots=s.slots if event.slots is None else event.slots,
    )


def set_share(x: Experiment, event: ShareSet) -> None:
    """The share changed: idle machines above it go at once, busy ones when the policy or the deadline frees them.

    While the experiment is above its share the earliest deadline holds; when that has passed, a still smaller share sets
    a new one.
    """
    grown, shrunk = event.slots > x.share, event.slots < x.share
    x.share = event.slots
    x.shed()
    deadline = None
    if x.held > x.share:
        deadline = x.timers.get(SHARE_TIMER, event.at)
        if SHARE_TIMER not in x.timers and (shrunk or not x.overdue):
            deadline = event.at + x.settings.grace
            x.overdue = False
            x.set_timer(SHARE_TIMER, deadline)
    if grown:
        x.wake()
    x.call(ShareChange(event.slots, deadline))
    x.emit(ExperimentChanged(x.id))


def _preempt(x: Experiment) -> None:
    """The deadline of a smaller share has passed: the core suspends what the policy did not.

    Runs of the lowest priority first, then those of the newest jobs; runs that may not be preempted stay until they end.
    Asked with each event until the experiment is within its share, since what is left to leave may change.
    """
    leaving = sum(_counted(x, run) for run in x.live.values() if run.ending is not None)
    surplus = x.held - x.share - leaving
    victims = sorted(
        (run for run in x.live.values() if run.ending is None and run.preemptible),
        key=lambda run: (x.jobs[run.job].priority or 0.0, -x.jobs[run.job].ordinal),
    )
    for run in victims:
        if surplus <= 0:
            return
        commands.end_run(x, run, RunEndReason.PREEMPTED)
        surplus -= _counted(x, run)


def _counted(x: Experiment, run: Run) -> int:
    """Machines of a run that count against the share."""
    return sum(machine not in x.draining for machine in run.machines)
