"""The lifecycle of experiments: join, pause, resume, end, and changes of settings, which may extend an ended experiment."""

from __future__ import annotations

from dataclasses import replace

from hopyard.policy.vocabulary import (
    ENDLESS,
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
from hopyard_engine.core.actions import (
    earlier_results,
    experiment_end,
    experiment_state,
    failures,
    objective,
    permanent_failures,
    runs,
    target,
)
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
    """Add an experiment to the group and start it. A stream whose experiments had all ended becomes active again."""
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
    """Apply the action of a person or client: pause, resume, stop, close or keep an experiment.

    An action that the state of the experiment does not allow has no effect.
    """
    experiment = stream.experiments[event.experiment or stream.founder.id]
    match event.action:
        case "pause" if experiment.state is ExperimentState.RUNNING:
            reason = Reason(ReasonCode.PAUSED_BY_PERSON)
            pause(stream, experiment, event.at, reason, ends_if_done=event.ends_if_done)
        case "resume" if experiment.state in (ExperimentState.PAUSED, ExperimentState.PAUSING):
            if experiment.reason is not None and experiment.reason.code is ReasonCode.JOBS_FAIL_ALIKE:
                permanent_failures.forget_failures(stream, experiment)
            experiment_state.enter(stream, experiment, ExperimentState.RUNNING, None)
            stream.conversation.listen()
            experiment_state.start_clock(stream, experiment, event.at)
            stream.wake()
            if experiment.generator_failed:
                stream.repeat_generator_questions(experiment)
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


def pause(stream: Stream, experiment: Experiment, at: float, reason: Reason, *, ends_if_done: bool = False) -> None:
    """Make an experiment PAUSING and suspend its runs at their next boundary.

    It becomes PAUSED when all runs have left their slots and no upload of its snapshots is in progress. With `ends_if_done` it then
    ends if all its jobs have ended and no more can be created. `at` is the time of the event in seconds since the Unix epoch.
    """
    experiment.ends_if_done = ends_if_done
    experiment_state.enter(stream, experiment, ExperimentState.PAUSING, reason)
    experiment_state.stop_clock(stream, experiment, at)
    for run in experiment_state.runs_of(stream, experiment):
        runs.end_run(stream, run, RunEndReason.SUSPENDED, displaces=True)
    stream.call(ExperimentChange("paused", experiment.id))


def pause_all(stream: Stream, at: float, reason: Reason) -> None:
    """Pause all RUNNING experiments of the stream. `at` is the time of the event in seconds since the Unix epoch."""
    for experiment in stream.running:
        pause(stream, experiment, at, reason)


def advance(stream: Stream, at: float) -> None:
    """Perform all changes that follow from the state alone.

    These are: return slots, preempt runs, end experiments, drop snapshots above the quota, and report a changed demand, weight or
    maximum number of slots to the cluster state. To be called after each event. `at` is the time of the event in seconds since the
    Unix epoch.
    """
    stream.shed()
    if stream.granted <= stream.share:
        stream.overdue = False
        stream.set_timer(ShareTimer(), None)
    elif stream.overdue:
        preemption.preempt(stream)
    _advance_experiments(stream, at)
    while stream.snapshots_changed:
        stream.snapshots_changed = False
        eviction.keep_within(stream)
        _advance_experiments(stream, at)  # A pause or an end may have waited for the dropped snapshots.
    if stream.state.ended:
        return
    if (stream.claim, stream.gang, stream.nodes) != (stream.claimed, stream.claimed_gang, stream.claimed_nodes):
        stream.claimed, stream.claimed_gang, stream.claimed_nodes = stream.claim, stream.gang, stream.nodes
        stream.emit(DemandChanged(stream.id, stream.claimed, stream.claimed_gang, stream.claimed_nodes))
    if stream.terms != stream.terms_sent:
        stream.terms_sent = stream.terms
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
    elif experiment.state is ExperimentState.PAUSED and experiment.ends_if_done and _all_done(stream, experiment):
        _end_paused(stream, experiment, at)
    if experiment.state is ExperimentState.ENDING and not experiment_state.runs_of(stream, experiment):
        if not experiment.wound_up:
            experiment.wound_up = True
            _wind_up(stream, experiment)
        deferred_uploads.wound_up(stream, experiment)
        if _settled(stream, experiment) and not _untold(stream, experiment):  # Retained snapshots must be stored first.
            _finish(stream, experiment, at)


def _end_paused(stream: Stream, experiment: Experiment, at: float) -> None:
    """End a PAUSED experiment that has no work left, for the reason for which it would end if it were RUNNING."""
    if not experiment_end.end_by_target(stream, experiment, at):
        experiment_end.enter_end(stream, experiment, *_verdict(stream, experiment), at)


def _idle(stream: Stream, experiment: Experiment, seconds: float, at: float) -> None:
    """Start the idle timer of a RUNNING experiment that has no work left (`_nothing_left`), unless it is already set; else cancel it.

    The idle timer ends the experiment when it elapses.

    Args:
        stream: The stream of the experiment.
        experiment: The experiment.
        seconds: Its idle time in seconds.
        at: Time of the event in seconds since the Unix epoch.
    """
    timer = IdleTimer(experiment.id)
    if experiment.state is not ExperimentState.RUNNING or not _nothing_left(stream, experiment):
        stream.set_timer(timer, None)
    elif stream.due(timer) is None:
        stream.set_timer(timer, at + seconds)


def idle_over(stream: Stream, experiment: Experiment, at: float) -> None:
    """Make an experiment whose idle timer has elapsed ENDING, with the final state COMPLETED.

    `at` is the time of the event in seconds since the Unix epoch.
    """
    reason = Reason.of(ReasonCode.IDLE_TIME_OVER, seconds=experiment.settings.idle)
    experiment_end.enter_end(stream, experiment, ExperimentState.COMPLETED, reason, at)


def _settled(stream: Stream, experiment: Experiment) -> bool:
    """Return whether no upload of the experiment's snapshots is in progress."""
    return stream.snapshots.settled_of(lambda job: stream.jobs[job].experiment is experiment)


def _untold(stream: Stream, experiment: Experiment) -> bool:
    """Return whether an experiment that ran out of time must not end yet, because up-calls are pending.

    It ends after these up-calls, because its policy must know all results if the experiment gets more time.
    """
    conversation = stream.conversation
    return experiment.out_of_time and conversation.state is not ConversationState.SILENT and conversation.busy


def _verdict(stream: Stream, experiment: Experiment) -> tuple[ExperimentState, Reason]:
    """Return the final state and its reason for an experiment that has no work left.

    The state is FAILED if the experiment has jobs and all of them failed, else COMPLETED.
    """
    jobs = [job for job in stream.jobs.values() if job.experiment is experiment]
    if jobs and experiment.states.get(JobState.FAILED, 0) == len(jobs):
        return ExperimentState.FAILED, Reason.of(ReasonCode.EVERY_JOB_FAILED, job=jobs[0].id, cause=jobs[0].reason)
    return ExperimentState.COMPLETED, Reason(
        ReasonCode.ALL_JOBS_ENDED if experiment.all_ended else ReasonCode.NOTHING_LEFT
    )


def _nothing_left(stream: Stream, experiment: Experiment) -> bool:
    """Return whether an experiment has no work left: nothing is pending, and no job can or will be started.

    No job will be started if all jobs have ended and no more can be created, if the policy stated a demand of 0 slots, or if it started
    nothing when it was last offered idle slots.

    Pending are up-calls and questions without an answer, and, unless all jobs have ended and no more can be created, also runs, HELD
    jobs, timers of the policy, backoffs, and slots or data that the stream waits for.
    """
    if stream.conversation.busy:
        return False
    if experiment.jobs_left == 0 and experiment.all_ended:
        return _all_done(stream, experiment)
    awaits_answer = not all(map(stream.waits_for_person, stream.asks.values()))
    if stream.live or awaits_answer or stream.conversation.demand_outdated or experiment.states.get(JobState.HELD):
        return False
    if any(isinstance(timer_of(ticket), PolicyTimer | BackoffTimer) for ticket in stream.timers):
        return False
    if stream.demand is not None and stream.demand > len(stream.slots):
        return False  # It waits for slots, such as the second of a gang.
    if stream.data is not None and stream.data.missing() and stream.demand != 0 and not experiment.all_ended:
        return False  # It waits for a node with a replica of the missing partitions.
    conversation = stream.conversation
    offered = (
        conversation.at_rest
        and not conversation.allocation_due
        and sum(m.idle for m in stream.slots.values()) >= stream.gang
    )
    return offered or stream.demand == 0


def _all_done(stream: Stream, experiment: Experiment) -> bool:
    """Return whether all jobs of an experiment have ended, no more can be created, and no up-call or question is unanswered."""
    if stream.conversation.busy or experiment.jobs_left or not experiment.all_ended:
        return False
    return not any(question.experiment in ("", experiment.id) for question in stream.asks.values())


def answered_allocation(stream: Stream, accepted: list[Command]) -> None:
    """Record whether the policy started nothing in its answer to an `AllocateJobs` up-call.

    The result is recorded in `PolicyConversation.at_rest`. It is True if the policy issued no command except to label jobs or to
    reserve or release slots. `_nothing_left` uses it: a policy that leaves idle slots unused may have no more work.

    `accepted` are the accepted commands of the answer.
    """
    stream.conversation.at_rest = all(isinstance(command, LabelJob | ReserveSlot | ReleaseSlot) for command in accepted)


def _wind_up(stream: Stream, experiment: Experiment) -> None:
    """Complete or terminate the remaining jobs of an ENDING experiment after its last run, and drop snapshots that nobody needs then.

    The winner and the jobs that reached the target are COMPLETED. If the final state is COMPLETED, all others remain idle, so that they
    can continue if the experiment is extended, unless their snapshots are kept for other experiments (`Job.lends`). Else they are
    TERMINATED.
    """
    assert experiment.final is not None
    state, reason = experiment.final
    jobs = [job for job in stream.jobs.values() if job.experiment is experiment]
    for job in jobs:
        if not (job.state.idle or job.state is JobState.HELD):
            continue
        reached = target.ever(stream, job) is not None
        if reached or job.id == experiment.winner:
            job.position = job.high_water  # Even if the program has no snapshot there.
            own = Reason(ReasonCode.TARGET_REACHED_BY_JOB) if reached else reason
            stream.move(job, JobState.COMPLETED, own)
    for job in jobs:
        if (state is not ExperimentState.COMPLETED or job.lends) and not job.state.ended:
            stream.move(job, JobState.TERMINATED, experiment_end.stop_reason(job, reason))
        elif experiment.out_of_time:  # The predictions will not be answered.
            stream.withdraw_predictions(job)
    # When the last experiment of a group or a search plan ends, no other job can start from the snapshots of its jobs. So requested and
    # lent snapshots are no longer needed.
    for job in stream.jobs.values() if stream.state is ExperimentState.ENDING or experiment.settings.plan else jobs:
        if job.asked or job.lends:
            stream.collect(job)
    for job in jobs:
        if stream.for_others(job):  # Their recompute cost rose when earlier ones were dropped.
            stream.changed(job)


def _finish(stream: Stream, experiment: Experiment, at: float) -> None:
    """Give an experiment without runs and uploads its final state. If it is the last of its group, the stream releases its slots.

    Then the changes of settings that arrived during ENDING are applied. `at` is the time of the event in seconds since the Unix epoch.
    """
    assert experiment.final is not None
    experiment.ended_at = at
    for job in stream.jobs.values():
        if job.experiment is experiment and (job.rung is not None or not job.state.ended):
            stream.changed(job)  # It is shown as stopped (`core.job_ends`).
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
            stream.timers[ticket] = due  # It is set again if an experiment is extended.
    for slot in sorted(stream.slots):
        stream.give_up(slot)
        stream.emit(SlotReturned(stream.id, slot))
    earlier_results.lend_no_more(stream)
    stream.share = 0
    stream.overdue = False


# ------------------------------------------------------------------------------------------------------------------- terms


def update(stream: Stream, event: Updated) -> None:
    """Change the settings of an experiment. An ended experiment continues if the change gives it work.

    If the experiment is ENDING, the change is applied after its end. The change is refused if its stream was stopped after an error in
    the core (`quarantine`), or if it names a metric that the experiment cannot get (`objective.metric_obstacle`).
    """
    experiment = stream.experiments[event.experiment or stream.founder.id]
    if stream.quarantined:
        stream.emit(Refused(stream.id, "", Reason.of(ReasonCode.UPDATE_REFUSED, cause=stream.reason)))
        return  # A repetition is refused again.
    if event.metric and (obstacle := objective.metric_obstacle(stream, event.metric)) is not None:
        stream.emit(Refused(stream.id, "", obstacle))
        return
    stream.requests.add(event.request)
    if experiment.state is ExperimentState.ENDING:
        experiment.deferred.append(event)
    else:
        _apply(stream, experiment, event, event.at)


def _apply(stream: Stream, experiment: Experiment, event: Updated, at: float) -> None:
    longer = event.max_position is not None and event.max_position > experiment.settings.max_position
    if event.metric:
        objective.rename_metric(stream, event.metric)
    experiment.settings = _changed(experiment.settings, event)
    experiment.changed = True
    if stream.settings.scales and (event.concurrency is not None or "concurrency" in event.cleared):
        stream.wake()  # The policy's demand depends on `concurrency`.
        stream.conversation.demand_outdated = stream.demand is not None
    extended = longer or event.more_jobs > 0 or event.more_seconds > 0
    if longer:
        for job in list(stream.jobs.values()):
            unfinished = job.limit is None and job.position < job.max_position
            if job.experiment is experiment and job.state is JobState.COMPLETED and unfinished:
                _reopen(stream, job)
    if extended and experiment.state.ended:
        experiment_state.reopen(stream, experiment)
    if extended or event.target is not None or "target" in event.cleared:
        if experiment.running:
            if experiment.running_since is not None:
                experiment_state.stop_clock(stream, experiment, at)
            experiment_state.start_clock(stream, experiment, at)
        stream.wake()
        stream.call(ExperimentChange("extended" if extended else "target", experiment.id))
    if event.target is not None or event.metric:
        experiment_end.check_best(stream, experiment, at)
    stream.emit(ExperimentChanged(experiment.id))


def _reopen(stream: Stream, job: Job) -> None:
    """Make a completed job idle again after its maximum position was raised. It resumes from its newest snapshot.

    A fork without a snapshot resumes from the snapshot that it was forked from. If that one is gone, the fork fails, or stays
    completed if the snapshot may have been deleted because of a quota.
    """
    own = stream.snapshots.newest(job.id)
    source = stream.source_of(job)
    if job.forked and source is None and (stream.snapshot_quota is not None or stream.gave_up):
        stream.emit(Noted(stream.id, "", Reason.of(ReasonCode.JOB_STAYS_COMPLETED, job=job.id), aloud=True))
        return
    job.position = source[1] if source is not None else 0
    job.kept = None
    if own is None and source is not None:  # The job starts from its origin's snapshot again.
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
        jobs=s.jobs if s.jobs == ENDLESS else min(s.jobs + event.more_jobs, ENDLESS - 1),
        max_position=max(event.max_position or 0, s.max_position),
        max_seconds=None if s.max_seconds is None else s.max_seconds + event.more_seconds,
        weight=s.weight if event.weight is None else event.weight,
    )
