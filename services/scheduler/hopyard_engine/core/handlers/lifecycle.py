"""Pausing, going on, winding up and extending: what happens to an experiment as a whole."""

from __future__ import annotations

from dataclasses import replace

from hopyard.policy.vocabulary import (
    Command,
    ExperimentChange,
    ExperimentState,
    JobState,
    LabelJob,
    ReleaseSlot,
    ReserveSlot,
    RunEndReason,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions import earlier_results, experiment_end, experiment_state, failures, runs, target
from hopyard_engine.core.actions.snapshots import deferred_uploads, eviction
from hopyard_engine.core.effects import (
    DemandChanged,
    ExperimentChanged,
    Noted,
    Refused,
    SlotReturned,
    StreamEnded,
    TermsChanged,
    WithdrawQuestion,
)
from hopyard_engine.core.events import ExperimentJoined, Operated, Updated
from hopyard_engine.core.handlers import preemption
from hopyard_engine.core.state.entities import Job
from hopyard_engine.core.state.experiment import Experiment
from hopyard_engine.core.state.policy_conversation import ConversationState
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import BackoffTimer, EndTimer, IdleTimer, PolicyTimer, ShareTimer, timer_of
from hopyard_engine.core.types import Settings


def join(stream: Stream, event: ExperimentJoined) -> None:
    """Another experiment joins the group, which goes on if it was over."""
    over = stream.state.ended
    experiment = stream.add(event)
    experiment_state.start_clock(stream, experiment, event.at)
    experiment_state.enter(stream, experiment, ExperimentState.RUNNING, None)
    stream.conversation.listen()
    if over:
        experiment_state.revive(stream)
    stream.wake()
    stream.call(ExperimentChange("joined", experiment.id))


def operate(stream: Stream, event: Operated) -> None:
    """Pause, resume, stop, close or keep; each twice is as good as once, and one that makes no sense now changes nothing."""
    experiment = stream.experiments[event.experiment or stream.founder.id]
    match event.action:
        case "pause" if experiment.state is ExperimentState.RUNNING:
            pause(stream, experiment, event.at, Reason(ReasonCode.PAUSED_BY_PERSON))
        case "resume" if experiment.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
            experiment_state.enter(stream, experiment, ExperimentState.RUNNING, None)
            stream.conversation.listen()
            experiment_state.start_clock(stream, experiment, event.at)
            stream.wake()
            stream.call(ExperimentChange("resumed", experiment.id))
            experiment_end.check_best(stream, experiment, event.at)
        case "stop" if not experiment.state.ended and experiment.state is not ExperimentState.ENDING:
            experiment_end.begin_end(
                stream, experiment, ExperimentState.STOPPED, Reason(ReasonCode.STOPPED_BY_PERSON), event.at
            )
        case "close" if not experiment.state.ended and experiment.state is not ExperimentState.ENDING:
            closed = Reason(ReasonCode.CLOSED_BY_CLIENT)
            experiment_end.begin_end(stream, experiment, ExperimentState.COMPLETED, closed, event.at)
        case "keep" if experiment.settings.idle is not None and stream.due(IdleTimer(experiment.id)) is not None:
            stream.set_timer(IdleTimer(experiment.id), event.at + experiment.settings.idle)
        case _:
            pass


def pause(stream: Stream, experiment: Experiment, at: float, reason: Reason) -> None:
    """Suspends all its runs at their next boundary; PAUSED when all have left their slots and their state is stored."""
    experiment_state.enter(stream, experiment, ExperimentState.PAUSING, reason)
    experiment_state.stop_clock(stream, experiment, at)
    for run in experiment_state.runs_of(stream, experiment):
        runs.end_run(stream, run, RunEndReason.SUSPENDED)
    stream.call(ExperimentChange("paused", experiment.id))


def pause_all(stream: Stream, at: float, reason: Reason) -> None:
    """Pauses all experiments of the stream: their policy does not do what it must."""
    for experiment in stream.running:
        pause(stream, experiment, at, reason)


def advance(stream: Stream, at: float) -> None:
    """Takes the steps that nothing but the state itself calls for."""
    stream.shed()
    if stream.granted <= stream.share:
        stream.overdue = False
        stream.set_timer(ShareTimer(), None)
    elif stream.overdue:
        preemption.preempt(stream)
    _advance_experiments(stream, at)
    while stream.tidied:
        stream.tidied = False
        eviction.keep_within(stream)
        _advance_experiments(stream, at)  # A pause or an end may have waited for what was given up.
    if stream.state.ended:
        return
    if (stream.claim, stream.gang, stream.nodes) != (stream.claimed, stream.claimed_gang, stream.claimed_nodes):
        stream.claimed, stream.claimed_gang, stream.claimed_nodes = stream.claim, stream.gang, stream.nodes
        stream.emit(DemandChanged(stream.id, stream.claimed, stream.claimed_gang, stream.claimed_nodes))
    if stream.terms != stream.terms_told:
        stream.terms_told = stream.terms
        stream.emit(TermsChanged(stream.id, *stream.terms))


def _advance_experiments(stream: Stream, at: float) -> None:
    for experiment in stream.experiments.values():
        _advance_experiment(stream, experiment, at)


def _advance_experiment(stream: Stream, experiment: Experiment, at: float) -> None:
    if experiment.state is ExperimentState.PAUSING and not experiment_state.runs_of(stream, experiment):
        deferred_uploads.wound_up(stream, experiment)
        if _settled(stream, experiment):
            experiment_state.enter(stream, experiment, ExperimentState.PAUSED, experiment.reason)
    if experiment.settings.idle is not None:
        _idle(stream, experiment, experiment.settings.idle, at)
    elif experiment.state is ExperimentState.RUNNING and _nothing_left(stream, experiment):
        experiment_end.enter_end(stream, experiment, *_verdict(stream, experiment), at)
    if experiment.state is ExperimentState.ENDING and not experiment_state.runs_of(stream, experiment):
        if not experiment.wound_up:
            experiment.wound_up = True
            _wind_up(stream, experiment)
        deferred_uploads.wound_up(stream, experiment)
        if _settled(stream, experiment) and not _untold(stream, experiment):  # What is kept must outlive the nodes.
            _finish(stream, experiment, at)


def _idle(stream: Stream, experiment: Experiment, seconds: float, at: float) -> None:
    """An experiment that is open for requests ends when it had nothing to do for so long."""
    timer = IdleTimer(experiment.id)
    if experiment.state is not ExperimentState.RUNNING or not _nothing_left(stream, experiment):
        stream.set_timer(timer, None)
    elif stream.due(timer) is None:
        stream.set_timer(timer, at + seconds)


def idle_over(stream: Stream, experiment: Experiment, at: float) -> None:
    """It was idle for its full time, and nobody kept it open."""
    reason = Reason.of(ReasonCode.IDLE_TIME_OVER, seconds=experiment.settings.idle)
    experiment_end.enter_end(stream, experiment, ExperimentState.COMPLETED, reason, at)


def _settled(stream: Stream, experiment: Experiment) -> bool:
    """Whether everything that its jobs saved is in the store, or will never get there."""
    return stream.snapshots.settled_of(lambda job: stream.jobs[job].experiment is experiment)


def _untold(stream: Stream, experiment: Experiment) -> bool:
    """Whether its policy, which may go on with its jobs, has still to hear what became of them."""
    conversation = stream.conversation
    return experiment.out_of_time and conversation.state is not ConversationState.SILENT and conversation.busy


def _verdict(stream: Stream, experiment: Experiment) -> tuple[ExperimentState, Reason]:
    """How an experiment ended that has nothing left to do."""
    jobs = [job for job in stream.jobs.values() if job.experiment is experiment]
    if jobs and experiment.states.get(JobState.FAILED, 0) == len(jobs):
        return ExperimentState.FAILED, Reason.of(ReasonCode.EVERY_JOB_FAILED, job=jobs[0].id, cause=jobs[0].reason)
    return ExperimentState.COMPLETED, Reason(
        ReasonCode.ALL_JOBS_ENDED if experiment.all_ended else ReasonCode.NOTHING_LEFT
    )


def _nothing_left(stream: Stream, experiment: Experiment) -> bool:
    """Whether an experiment is done: all its jobs ended and it has no more, or the policy of them all wants nothing."""
    if stream.conversation.busy:
        return False
    if experiment.jobs_left == 0 and experiment.all_ended:
        return not any(question.experiment in ("", experiment.id) for question in stream.asks.values())
    if stream.live or stream.asks or stream.conversation.demand_outdated or experiment.states.get(JobState.HELD):
        return False
    if any(isinstance(timer_of(ticket), PolicyTimer | BackoffTimer) for ticket in stream.timers):
        return False
    if stream.demand is not None and stream.demand > len(stream.slots):
        return False  # It waits for slots, such as the second of a gang.
    if stream.data is not None and stream.data.missing() and stream.demand != 0 and not experiment.all_ended:
        return False  # It waits for a node that holds what is missing.
    conversation = stream.conversation
    offered = (
        conversation.at_rest
        and not conversation.allocation_due
        and sum(m.idle for m in stream.slots.values()) >= stream.gang
    )
    return offered or stream.demand == 0


def answered_allocation(stream: Stream, accepted: list[Command]) -> None:
    """The policy was offered idle slots; when it wanted nothing and nothing else goes on, the experiment is over."""
    stream.conversation.at_rest = all(isinstance(command, LabelJob | ReserveSlot | ReleaseSlot) for command in accepted)


def _wind_up(stream: Stream, experiment: Experiment) -> None:
    """All its runs are over: no job waits for a slot any more, unless the experiment may be extended."""
    assert experiment.final is not None
    state, reason = experiment.final
    jobs = [job for job in stream.jobs.values() if job.experiment is experiment]
    for job in jobs:
        if not (job.state.idle or job.state is JobState.HELD):
            continue
        reached = target.ever(stream, job) is not None
        if reached or job.id == experiment.winner:
            job.position = job.high_water  # Also where a program without snapshots would begin again.
            own = Reason(ReasonCode.TARGET_REACHED_BY_JOB) if reached else reason
            stream.move(job, JobState.COMPLETED, own)
    for job in jobs:
        if (state is not ExperimentState.COMPLETED or job.lends) and not job.state.ended:
            stream.move(job, JobState.TERMINATED, reason)
        elif experiment.out_of_time:  # Nobody will answer.
            stream.withdraw_predictions(job)
    # The last one of a group, or of those that train alike, leaves nobody who may go on from the others' jobs. Only what was asked
    # for, and what was lent, is needed no more by that.
    for job in stream.jobs.values() if stream.state is ExperimentState.ENDING or experiment.settings.plan else jobs:
        if job.asked or job.lends:
            stream.collect(job)
    for job in jobs:
        if stream.for_others(job):  # What was dropped before them makes them dearer.
            stream.changed(job)


def _finish(stream: Stream, experiment: Experiment, at: float) -> None:
    """An experiment holds nothing any more. The last one of its group lets go of the slots."""
    assert experiment.final is not None
    experiment.ended_at = at
    stream.set_timer(EndTimer(experiment.id), None)
    if all(m is experiment or m.state.ended for m in stream.experiments.values()):
        _let_all_go(stream)
        experiment_state.enter(stream, experiment, *experiment.final)
        stream.emit(StreamEnded(stream.id))
    else:
        experiment_state.enter(stream, experiment, *experiment.final)
        stream.call(ExperimentChange("ended", experiment.id))
        stream.wake()
    deferred, experiment.deferred = experiment.deferred, []
    for event in deferred:
        _apply(stream, experiment, event, at)


def _let_all_go(stream: Stream) -> None:
    may_go_on = any(experiment.out_of_time for experiment in stream.experiments.values())
    for ticket in stream.asks:
        stream.emit(WithdrawQuestion(stream.id, ticket))
    stream.asks.clear()
    stream.conversation.end(drop_calls=not may_go_on)
    for ticket, due in list(stream.timers.items()):
        timer = timer_of(ticket)
        stream.set_timer(timer, None)
        if may_go_on and isinstance(timer, BackoffTimer):
            failures.end_backoff(stream, stream.jobs.get(timer.job))
        elif may_go_on and isinstance(timer, PolicyTimer):
            stream.timers[ticket] = due  # It is set again when an experiment goes on.
    for slot in sorted(stream.slots):
        stream.give_up(slot)
        stream.emit(SlotReturned(stream.id, slot))
    earlier_results.lend_no_more(stream)
    stream.share = 0
    stream.overdue = False


# ------------------------------------------------------------------------------------------------------------------- terms


def update(stream: Stream, event: Updated) -> None:
    """Changes the experiment's terms; a finished one goes on if that gives it something to do.

    One that is ending ends first. One that was taken out of the core after a mistake there stays as it is.
    """
    experiment = stream.experiments[event.experiment or stream.founder.id]
    stream.requests.add(event.request)
    if stream.quarantined:
        stream.emit(Refused(stream.id, "", Reason.of(ReasonCode.UPDATE_REFUSED, cause=stream.reason)))
    elif experiment.state is ExperimentState.ENDING:
        experiment.deferred.append(event)
    else:
        _apply(stream, experiment, event, event.at)


def _apply(stream: Stream, experiment: Experiment, event: Updated, at: float) -> None:
    longer = event.max_position is not None and event.max_position > experiment.settings.max_position
    experiment.settings = _changed(experiment.settings, event)
    experiment.changed = True
    if stream.settings.scales and (event.concurrency is not None or "concurrency" in event.cleared):
        stream.wake()  # Its demand follows from how many jobs may train.
        stream.conversation.demand_outdated = stream.demand is not None
    extended = longer or event.more_jobs > 0 or event.more_seconds > 0
    if longer:
        for job in list(stream.jobs.values()):
            unfinished = job.limit is None and job.position < job.max_position
            if job.experiment is experiment and job.state is JobState.COMPLETED and unfinished:
                _reopen(stream, job)
    if extended and experiment.state.ended:
        over = stream.state.ended
        experiment.final = experiment.ended_at = None
        experiment.winner = ""
        experiment.wound_up = experiment.out_of_time = False
        experiment_state.enter(stream, experiment, ExperimentState.RUNNING, None)
        stream.conversation.listen()
        if over:
            experiment_state.revive(stream)
    if extended or event.target is not None or "target" in event.cleared:
        if experiment.running:
            if experiment.running_since is not None:
                experiment_state.stop_clock(stream, experiment, at)
            experiment_state.start_clock(stream, experiment, at)
        stream.wake()
        stream.call(ExperimentChange("extended" if extended else "target", experiment.id))
    if event.target is not None:
        experiment_end.check_best(stream, experiment, at)
    stream.emit(ExperimentChanged(experiment.id))


def _reopen(stream: Stream, job: Job) -> None:
    """A job that had trained to the end goes on from what is left of it."""
    own = stream.snapshots.newest(job.id)
    source = stream.source_of(job)
    if job.forked and source is None and (stream.snapshot_quota is not None or stream.gave_up):
        stream.emit(Noted(stream.id, "", Reason.of(ReasonCode.JOB_STAYS_COMPLETED, job=job.id), aloud=True))
        return
    job.position = source[1] if source is not None else 0
    job.kept = None
    if own is None and source is not None:  # It starts from its origin again, which must stay until then.
        job.fork_pin = source
        stream.snapshots.pin(source, job.fork_holder)
    state = JobState.SUSPENDED if own is not None else JobState.PENDING
    stream.move(job, state, Reason(ReasonCode.EXTENDED))
    if job.forked and source is None:
        stream.move(job, JobState.FAILED, Reason(ReasonCode.ORIGIN_LOST))


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
