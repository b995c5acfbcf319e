"""Messages of runs: the start, reports, answers to amendments, snapshots, and the end."""

from __future__ import annotations

import math

from hopyard.policy.vocabulary import (
    ENDLESS,
    AnswerReady,
    ApplicationStat,
    DecisionKind,
    ExperimentState,
    IterationFinish,
    JobState,
    Report,
    RunEnd,
    RunEndReason,
    RunKey,
    RunMode,
)
from hopyard.policy.vocabulary.reasons import Reason, ReasonCode
from hopyard_engine.core.actions import (
    cost_attribution,
    experiment_end,
    failures,
    generator_feedback,
    permanent_failures,
    runs,
)
from hopyard_engine.core.actions.objective import judge, missing_metric
from hopyard_engine.core.actions.snapshots import deferred_uploads
from hopyard_engine.core.effects import (
    Acknowledge,
    Decide,
    ForgetSnapshot,
    Kill,
    Noted,
    Profiled,
    Refused,
    ReportAccepted,
)
from hopyard_engine.core.events import Amended, Ended, Reports, RunMessage, SnapshotStored, SnapshotTaken, Started
from hopyard_engine.core.handlers import lifecycle
from hopyard_engine.core.state.curve import same_metrics
from hopyard_engine.core.state.entities import Job, Rank, Run
from hopyard_engine.core.state.snapshot_entries import SnapshotId
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state_machines.run_states import RunState, change_run, report_parked
from hopyard_engine.core.types import Measured, SnapshotInfo

_DOING = {
    RunMode.TRAIN: Reason(ReasonCode.TRAINING),
    RunMode.EVALUATE: Reason(ReasonCode.EVALUATING),
    RunMode.PROFILE: Reason(ReasonCode.PROFILING),
}


def is_next(stream: Stream, event: RunMessage) -> bool:
    """Return whether a message is the next one of its channel, and so must be handled.

    If not, the message is ignored. A repeated message, or one of an unknown channel, is acknowledged again, so that the agent stops
    resending it.
    """
    job = stream.jobs.get(event.job)
    channel = job.channels.get((event.attempt, event.rank)) if job is not None else None
    if channel is not None and channel.is_next(event.sequence):
        return True
    key = RunKey(stream.id, event.job, event.attempt, event.rank)
    if channel is None:
        stream.emit(Acknowledge(key, event.sequence))
    elif event.sequence <= channel.received:
        stream.emit(Acknowledge(key, channel.received))
    return False


def take(stream: Stream, event: RunMessage) -> None:
    """Handle the next message of a channel.

    A message of an older attempt, or of a process that has left, is refused. Only the result of an upload is accepted from these too.
    """
    job = stream.jobs[event.job]
    channel = job.channels[event.attempt, event.rank]
    channel.received += 1
    stream.emit(Acknowledge(RunKey(stream.id, job.id, event.attempt, event.rank), channel.received))
    body = event.body
    if isinstance(body, Ended):
        channel.finished = True
    if isinstance(body, SnapshotStored):
        stored(stream, job, body, event.attempt)
        return
    run = current_run(job, event.attempt)
    if run is None or run.ranks[event.rank].gone:
        _refuse(stream, job, event, channel.node)
        return
    rank = run.ranks[event.rank]
    match body:
        case Ended():
            rank_ended(stream, job, run, rank, body, event.at)
        case Started():
            _started(stream, job, run, rank, body)
        case _ if event.rank != 0:
            pass  # Only rank 0 reports for the run.
        case Reports():
            cost_attribution.reported(stream, run, body.reports, event.at)
            for report in body.reports:
                _report(stream, job, run, report, event.at)
        case Amended():
            _amended(stream, job, run, body)
        case SnapshotTaken():
            taken(stream, job, body.snapshot, rank.node, run.attempt)


def current_run(job: Job, attempt: int) -> Run | None:
    """Return the job's run if it has this attempt number, else None. So messages of older attempts are recognized (fencing)."""
    return job.run if job.run is not None and job.run.attempt == attempt else None


def _refuse(stream: Stream, job: Job, event: RunMessage, node: str) -> None:
    snapshot = getattr(event.body, "snapshot", None)
    if isinstance(snapshot, SnapshotInfo) and not stream.snapshots.holds(snapshot.sha256):
        stream.emit(ForgetSnapshot(stream.id, snapshot.sha256, (node,), False))
    what = type(event.body).__name__
    reason = Reason.of(ReasonCode.MESSAGE_REFUSED, message=what, attempt=event.attempt, present=job.attempt)
    stream.emit(Refused(stream.id, job.id, reason))


def _started(stream: Stream, job: Job, run: Run, rank: Rank, body: Started) -> None:
    if rank.started:
        return
    rank.started = True
    stream.hops.arrived(body.fetched, from_store=body.from_store)
    if run.source is not None:
        stream.snapshots.fetched(*run.source, rank.node)
        stream.snapshots_changed = True  # A snapshot on two nodes needs no older fallback.
        if all(other.started for other in run.ranks):
            _let_source_go(stream, run)
    if rank is not run.ranks[0]:
        return
    if run.state is RunState.STARTING:  # Else another rank was lost before this message arrived.
        change_run(run, RunState.RUNNING, Reason(ReasonCode.RANK_0_STARTED))
    run.position = body.position
    if job.state is JobState.STARTING:
        stream.move(job, JobState.RUNNING, _DOING[run.mode])


def _let_source_go(stream: Stream, run: Run) -> None:
    if run.source is not None:
        source, run.source = run.source, None
        stream.snapshots.unpin(source, run.holder)
        stream.collect(stream.jobs[source[0]])


def _report(stream: Stream, job: Job, run: Run, report: Report, at: float) -> None:
    if run.mode is RunMode.PROFILE:
        report_parked(run, report.at_until)
        _keep_profile(stream, job, run, report)
        stream.call(ApplicationStat(job.id, report, run.inputs.get(run.ranks[0].slot, ""), run.mode))
        stream.send(run, 0, Decide(DecisionKind.CONTINUE, report.position))
        return
    job.experiment.first_failures = None
    training = run.mode is RunMode.TRAIN
    if run.mode is RunMode.EVALUATE:
        job.curve.evaluated(report.position, run.model)
    recorded = job.curve.recorded(report)
    new = report.position > job.high_water if training else recorded is None
    run.position = report.position
    report_parked(run, report.at_until)
    run.finished = run.finished or report.finished
    if training:
        job.position = report.position
    value = None
    if new:
        value = _accept(stream, job, run, report, at)
    elif recorded is not None and not same_metrics(recorded, report.metrics):
        code, then, now = ReasonCode.REPORT_DIFFERS, str(dict(recorded)), str(dict(report.metrics))
        stream.emit(Noted(stream.id, job.id, Reason.of(code, position=report.position, recorded=then, found=now)))
    if not training:
        if report.at_until:
            stream.send(run, 0, Decide(DecisionKind.CONTINUE, report.position))
    elif run.ending is None:
        if run.completes and report.at_until:
            if run.ended is None:  # Else another rank is lost, and the report completes nothing.
                runs.complete(stream, run, report.position)
        elif report.at_until or (new and (stream.settings.every_iteration or report.position >= run.allowed)):
            stream.call(IterationFinish(job.id, report, repeated=not new), run)
        elif not new and report.position >= run.allowed:
            stream.send(run, 0, Decide(DecisionKind.CONTINUE, report.position))
    if value is not None:
        experiment_end.check_target(stream, job, report.position, value, at)


def _keep_profile(stream: Stream, job: Job, run: Run, report: Report) -> None:
    """Emit the time that the report of a profiling run contains, to be stored for later experiments.

    Does nothing unless the report has a positive finite time, all slots of the run are on the same known kind of host, and the
    experiment has a key to store times under (`Settings.training`).
    """
    training, seconds = job.terms.training, report.metrics.get("seconds", math.nan)
    held = [stream.slots.get(rank.slot) for rank in run.ranks]
    kinds = {slot.hardware if slot is not None else "" for slot in held}
    if training and 0 < seconds < math.inf and len(kinds) == 1 and "" not in kinds:
        stream.emit(Profiled(job.experiment.id, job.id, training, Measured(kinds.pop(), len(run.ranks), seconds)))


def _accept(stream: Stream, job: Job, run: Run, report: Report, at: float) -> float | None:
    """Record a new report and inform the generator and the policy. Pause the experiment if its metric is missing.

    `at` is the time of the event in seconds since the Unix epoch.

    Returns:
        The experiment's metric at the position of the report, with the parts of an evaluation combined; None: it is not among the
        metrics.
    """
    job.losses = job.setbacks = job.unsaved = 0
    job.failure = None
    point = job.curve.add(report, run.parts, run.model)
    job.seconds += report.seconds
    combined = None
    if run.mode is RunMode.TRAIN:
        job.high_water = report.position
        generator_feedback.tell_report(job, report)
    elif point.expected and point.complete:
        combined = Report(report.position, point.metrics)
        generator_feedback.tell_report(job, combined)
    stream.emit(ReportAccepted(job.experiment.id, job.id, run.attempt, report, combined))
    value = point.metrics.get(stream.settings.metric)
    if value is not None:
        job.last = value
    judge(stream, job, report.position, value)
    if stream.settings.statistics:
        stream.call(ApplicationStat(job.id, report, run.inputs.get(run.ranks[0].slot, ""), run.mode))
    if value is None and (missing := missing_metric(stream, job, run, point)) is not None:
        job.experiment.paused_for = stream.settings.metric
        lifecycle.pause(stream, job.experiment, at, missing)
    return value


def _amended(stream: Stream, job: Job, run: Run, body: Amended) -> None:
    amend = run.amends.pop(body.ticket, None)
    if amend is None:
        return
    if body.accepted:
        job.ask(amend[1])
    if body.accepted and amend[0] is not None:
        run.until, run.completes = amend[0], False
        if run.parked and run.until > run.position:
            change_run(run, RunState.RUNNING, Reason.of(ReasonCode.UNTIL_MOVED, until=run.until))
    stream.call(AnswerReady(body.ticket, {"accepted": body.accepted, "position": body.position}))


def taken(stream: Stream, job: Job, snapshot: SnapshotInfo, node: str, attempt: int) -> None:
    """Record that an attempt of a job took a snapshot on a node, and order its upload if that is due.

    An order is due if uploads are deferred and the position is a multiple of `Settings.ship_every`, or the node drains. Without
    deferral the run uploads the snapshot itself.
    """
    by_order = job.terms.ship_every != 1
    stream.drop(stream.snapshots.taken(job.id, snapshot, node, attempt, deferred=by_order))
    if by_order:
        deferred_uploads.taken(stream, job, snapshot.position, node)
    stream.collect(job)
    stream.changed(job)
    if stream.settings.forks and snapshot.position in job.asked:
        stream.wake()
        stream.conversation.demand_outdated = stream.demand is not None


def stored(stream: Stream, job: Job, body: SnapshotStored, attempt: int) -> None:
    """Record the result of an upload by a run.

    If the snapshot is in the store, it survives the loss of its nodes, and a forked job no longer needs the snapshot that it was forked
    from. If the upload failed permanently, the snapshot stays on its nodes, and nothing waits for the upload any more.
    If the snapshot is unknown, was replaced, or was not taken by the run with this attempt number, nothing is recorded, and uploaded
    contents that no snapshot has are deleted from the store. A repeated result is not counted as another upload.
    """
    if body.error:
        if stream.snapshots.given_up(job.id, body.position, body.sha256, attempt):
            reason = Reason.of(ReasonCode.SNAPSHOT_NOT_STORED, position=body.position, error=body.error)
            stream.emit(Noted(stream.id, job.id, reason))
            stream.changed(job)
        return
    entry = stream.snapshots.get(job.id, body.position)
    known = entry is not None and entry.stored
    if not stream.snapshots.stored(job.id, body.position, body.sha256, attempt):
        if not stream.snapshots.holds(body.sha256):
            stream.emit(ForgetSnapshot(stream.id, body.sha256, (), True))
        return
    if entry is not None and not known:
        stream.hops.shipped(entry.info.size)
    survives(stream, job)


def survives(stream: Stream, job: Job) -> None:
    """Update what depends on the upload of a snapshot of the job, after it was recorded as stored.

    If `job` is a fork, its pin on the snapshot that it was forked from is removed. Unneeded snapshots are dropped. If
    the job has ended or its experiment is PAUSED, the job's remaining deferred uploads are ordered. Its row in AppStat is written
    again.
    """
    stream.unpin_fork(job)
    stream.collect(job)
    if job.state.ended or job.experiment.state is ExperimentState.PAUSED:  # A late upload: order deferred uploads too.
        stream.upload_remaining(job)
    stream.changed(job)


def rank_ended(stream: Stream, job: Job, run: Run, rank: Rank, body: Ended, at: float) -> None:
    """Handle the end of a process of a run, and close the run if this was its last process on a slot.

    The process's slot becomes free. The end of rank 0 ends the run. So does the loss or failure of another rank. If another rank
    leaves for a different reason, such as the end that rank 0 has reached, the run continues until the message of rank 0 arrives. A
    snapshot that rank 0 saved is recorded in each case.

    Args:
        stream: The stream of the job.
        job: The job.
        run: The run.
        rank: The process that ended.
        body: How it ended.
        at: Time of the event in seconds since the Unix epoch.
    """
    rank.gone, rank.missed, rank.missed_at = True, body.snapshot_missing, body.missing_at
    rank.channel.close()
    stream.free(rank.slot)
    if body.permanent and run.mode is not RunMode.PROFILE:  # A profiling run does not train the job.
        job.unable.add(rank.node)
    if rank is run.ranks[0] and body.snapshot is not None and run.mode is RunMode.TRAIN:
        taken(stream, job, body.snapshot, rank.node, run.attempt)
    if run.ended is None:
        _run_ended(stream, job, run, rank, body)
    if all(other.gone for other in run.ranks):
        close_run(stream, job, run, at)


def _run_ended(stream: Stream, job: Job, run: Run, rank: Rank, body: Ended) -> None:
    """End the run if the end of the process `rank` requires it, and determine what happens to its other processes.

    `body` says how the process ended. If rank 0 reached a regular end, the others get `kill_after` seconds to leave their slots. If
    the run is lost or failed, they are killed. If another rank leaves regularly, nothing changes.
    """
    if rank is run.ranks[0]:
        run.ended = body
        change_run(run, RunState.LEAVING, Reason.of(ReasonCode.RANK_0_ENDED, end=body.reason.value))
        if body.reason not in (RunEndReason.LOST, RunEndReason.FAILED):
            # The other ranks reach the same end and leave without a command, so that their processes can be reused.
            if not all(other.gone for other in run.ranks):
                stream.set_timer(runs.kill_timer(run), stream.now + stream.settings.kill_after)
                _others_leave(stream, job, run)
            return
    else:
        failed = body.reason is RunEndReason.FAILED
        if not failed and body.reason is not RunEndReason.LOST and _may_leave(run, body.reason):
            return
        reason = RunEndReason.FAILED if failed else RunEndReason.LOST
        said = body.cause or Reason.of(ReasonCode.PROCESS_ENDED, end=body.reason.value)
        cause = Reason.of(ReasonCode.RANK_ENDED, rank=run.ranks.index(rank), cause=said)
        run.ended = Ended(
            reason,
            run.position,
            user_code=body.user_code,
            cause=cause,
            unable=body.unable,
            fingerprint=body.fingerprint,
            permanent=body.permanent,
            code_missing=body.code_missing,
        )
        change_run(run, RunState.LEAVING, cause)
    for index, other in enumerate(run.ranks):
        if not other.gone:
            stream.send(run, index, Kill(Reason(ReasonCode.RUN_OVER)))
    _others_leave(stream, job, run)


def _others_leave(stream: Stream, job: Job, run: Run) -> None:
    """Make a job SUSPENDING if its run has ended while other ranks are still on their slots."""
    if job.state is not JobState.SUSPENDING and not all(other.gone for other in run.ranks):
        stream.move(job, JobState.SUSPENDING, Reason(ReasonCode.RANKS_LEAVING))


def _may_leave(run: Run, reason: RunEndReason) -> bool:
    """Return whether a rank other than 0 of `run` may leave its slot for `reason`. If not, its end makes the run LOST.

    It may if the end of the run was requested, if the program has nothing more to train, if the run does not train, or if it has
    reached an `until` at which it ends without a decision.
    """
    by_itself = run.completes and reason is RunEndReason.UNTIL  # Rank 0's last report may follow.
    return by_itself or run.ending is not None or run.finished or run.mode is not RunMode.TRAIN


def close_run(stream: Stream, job: Job, run: Run, at: float) -> None:
    """Close a run whose processes have all left their slots.

    The job becomes COMPLETED if it has trained to its end and needs no evaluation by the policy, TERMINATED if this was requested,
    FAILED if it had too many failures or losses or its failure is permanent, and idle otherwise. The policy gets a `RunEnd` up-call.
    `at` is the time of the event in seconds since the Unix epoch.
    """
    ended = run.ended
    assert ended is not None
    cost_attribution.over(stream, run, at)
    del stream.live[job.id]
    job.run = None
    stream.set_timer(runs.kill_timer(run), None)
    source, training = run.source, run.mode is RunMode.TRAIN
    _let_source_go(stream, run)
    unusable = source if source is not None and training and _record_missing_copies(stream, run, source) else None
    for ticket in run.amends:
        stream.call(AnswerReady(ticket, {"accepted": False, "position": ended.position}))
    reason = end_reason(run, ended)
    blameless = reason is RunEndReason.LOST and (unusable is not None or ended.code_missing)
    state, why = _outcome(stream, job, run, reason, ended, blameless=blameless)
    lost_cause = permanent_failures.verdict(stream, job, run, ended) if reason is RunEndReason.FAILED else None
    permanent = reason is RunEndReason.FAILED and ended.permanent and run.mode is not RunMode.PROFILE
    if lost_cause is not None or (permanent and permanent_failures.repeats(stream, job)):
        state, why = JobState.FAILED, Reason.of(ReasonCode.FAILED_FOR_GOOD, cause=ended.detail)
    if state is JobState.COMPLETED:
        job.position = ended.position
    elif state.idle:
        source = stream.source_of(job)
        job.position = source[1] if source is not None else 0
        if job.forked and source is None:
            state, why = JobState.FAILED, Reason(ReasonCode.ORIGIN_LOST)
        elif stream.snapshots.newest(job.id) is None:
            state = JobState.PENDING
            if training and ended.position > job.position and reason not in (RunEndReason.LOST, RunEndReason.FAILED):
                why = Reason.of(ReasonCode.BACK_AT_POSITION, position=job.position, cause=why)
                job.loses = True
        elif (
            job.position >= job.max_position and not job.terms.evaluates
        ):  # It was lost after its last snapshot was saved.
            state, why = JobState.COMPLETED, Reason(ReasonCode.TRAINED_TO_END)
    if unusable is not None and state.idle and blameless:
        why = Reason.of(ReasonCode.SNAPSHOT_UNUSABLE, at=unusable[1], position=job.position, cause=ended.detail)
        stream.emit(Noted(stream.id, job.id, why))
    removed = run.displaced and reason in (RunEndReason.SUSPENDED, RunEndReason.PREEMPTED, RunEndReason.LOST)
    job.displaced = removed and state.idle and job.terms.displaced_first
    stream.move(job, state, why)
    if reason in (RunEndReason.LOST, RunEndReason.FAILED) and run.mode is not RunMode.PROFILE and not blameless:
        failures.back_off(stream, job, at)
    stream.call(RunEnd(job.id, run.attempt, reason, ended.position, job.position, ended.cause, run.mode))
    if lost_cause is not None and job.experiment.state is not ExperimentState.ENDING:
        experiment_end.begin_end(stream, job.experiment, ExperimentState.FAILED, lost_cause, at)
    elif (
        reason is RunEndReason.FAILED
        and (common := permanent_failures.common_cause(stream, job, run, ended)) is not None
    ):
        lifecycle.pause(stream, job.experiment, at, common)
    elif reason is RunEndReason.LOST and ended.code_missing and job.experiment.running:
        missing = Reason.of(ReasonCode.CODE_MISSING, cause=ended.detail, experiment=job.experiment.id)
        lifecycle.pause(stream, job.experiment, at, missing)
    stream.shed()


def _record_missing_copies(stream: Stream, run: Run, source: SnapshotId) -> bool:
    """Record which nodes have no undamaged copy of the snapshot that a run was to load. Return whether no copy is left at all."""
    without: dict[str, tuple[str, ...]] = {}
    for rank in run.ranks:
        if rank.missed:
            without[rank.node] = (*without.get(rank.node, (rank.node,)), *rank.missed_at)
    for nodes in without.values():
        failures.missed(stream, source, nodes)
    return bool(without) and stream.snapshots.get(*source) is None


def end_reason(run: Run, ended: Ended) -> RunEndReason:
    """Return why a run ended, from the end that was requested of it (`run.ending`) and the end that was reported (`ended`).

    A requested TERMINATED has precedence. A suspension that was requested as a preemption is PREEMPTED. A termination that was not
    requested is LOST. Else the result is the reported reason.
    """
    if run.ending is RunEndReason.TERMINATED:
        return RunEndReason.TERMINATED
    if run.ending is RunEndReason.PREEMPTED and ended.reason is RunEndReason.SUSPENDED:
        return RunEndReason.PREEMPTED
    if ended.reason is RunEndReason.TERMINATED:
        return RunEndReason.LOST
    return ended.reason


def _reached(stream: Stream, job: Job, run: Run, position: int) -> tuple[JobState, Reason]:
    """Return the next state of a job whose run ended at `until`, which is `position`, and the reason of this state.

    The job is SUSPENDED. But a job whose training runs leave no snapshot at their `until` would train the same positions forever. So it
    is FAILED after more than `Settings.max_failures` + 1 such runs since its last new report.
    """
    source = stream.source_of(job)
    if run.mode is RunMode.TRAIN and (source is None or source[1] < position):
        job.unsaved += 1
        if job.unsaved > job.terms.max_failures + 1:  # The first such run made progress.
            return JobState.FAILED, Reason.of(ReasonCode.NOTHING_SAVED, position=position, times=job.unsaved)
    return JobState.SUSPENDED, Reason.of(ReasonCode.UNTIL_REACHED, position=position)


def _outcome(
    stream: Stream, job: Job, run: Run, reason: RunEndReason, ended: Ended, *, blameless: bool
) -> tuple[JobState, Reason]:
    """Return the state of a job after a run, with the reason.

    With `blameless`, the loss of the run has a cause that does not occur again, so it is not counted: its snapshot was removed because
    no undamaged copy is left, or its experiment is paused because its code is missing.
    """
    if reason in (RunEndReason.LOST, RunEndReason.FAILED):
        if run.mode is RunMode.PROFILE:
            code = ReasonCode.PROFILE_LOST if reason is RunEndReason.LOST else ReasonCode.PROFILE_FAILED
            return JobState.SUSPENDED, Reason.of(code, cause=ended.detail)
        job.setbacks += not blameless
    if reason is RunEndReason.TERMINATED:
        assert run.why is not None
        moves = "position" in run.why.args  # It may have reached another position before it left.
        return JobState.TERMINATED, run.why.plus(position=max(ended.position, job.high_water)) if moves else run.why
    if reason is RunEndReason.FAILED:
        job.failures += 1
        allowed = job.terms.max_failures
        if job.failures > allowed:
            code = ReasonCode.FAILED_TOO_OFTEN
            return JobState.FAILED, Reason.of(code, failures=job.failures, allowed=allowed, cause=ended.detail)
        job.failure = Reason.of(ReasonCode.FAILED, left=allowed - job.failures, cause=ended.detail)
        return JobState.SUSPENDED, job.failure
    if reason is RunEndReason.LOST:
        job.losses += not blameless
        if job.losses > job.terms.max_losses:
            return JobState.FAILED, Reason.of(ReasonCode.LOST_TOO_OFTEN, losses=job.losses, cause=ended.detail)
        return JobState.SUSPENDED, Reason.of(ReasonCode.RUN_LOST, cause=ended.detail)
    if run.mode is RunMode.TRAIN and (ended.position >= job.max_position or run.finished or ended.finished):
        if ended.position < job.max_position < ENDLESS:
            return JobState.COMPLETED, Reason.of(ReasonCode.PROGRAM_ENDED_EARLY, position=job.max_position)
        if job.terms.evaluates:
            return JobState.SUSPENDED, Reason(ReasonCode.TRAINED_TO_EVALUATE)
        return JobState.COMPLETED, Reason(ReasonCode.TRAINED_TO_END)
    if reason is RunEndReason.UNTIL:
        return _reached(stream, job, run, ended.position)
    job.suspends += 1
    if reason is RunEndReason.PREEMPTED:
        return JobState.SUSPENDED, Reason(ReasonCode.PREEMPTED)
    return JobState.SUSPENDED, Reason.of(ReasonCode.SUSPENDED, position=ended.position)
