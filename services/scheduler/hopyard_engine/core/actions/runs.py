"""Operations on runs: start, amend, end, kill, and the decision at a boundary."""

from __future__ import annotations

from collections.abc import Mapping

from hopyard.policy.vocabulary import (
    AmendRun,
    AnswerReady,
    Decision,
    DecisionKind,
    JobState,
    RunEndReason,
    RunMode,
    StartJob,
)
from hopyard.policy.vocabulary.reasons import Argument, Reason, ReasonCode
from hopyard_engine.core.actions import command_checks, earlier_results, group_results, prefix_join
from hopyard_engine.core.actions.command_checks import NotYetError, RefusedError
from hopyard_engine.core.effects import Amend, Decide, Kill, Start
from hopyard_engine.core.state.channel import RunChannel
from hopyard_engine.core.state.entities import GrantedSlot, Job, Rank, Run
from hopyard_engine.core.state.partitions import Place
from hopyard_engine.core.state.snapshot_entries import SnapshotEntry, SnapshotId
from hopyard_engine.core.state.stream import Stream
from hopyard_engine.core.state.timers import KillTimer


def start(stream: Stream, command: StartJob) -> None:
    """Start a run of an idle job on idle slots.

    The run loads the snapshot that the command names, else the one from which the job would resume (`Stream.source_of`). If there is
    neither, it starts at position 0.

    Raises:
        RefusedError: The job is unknown or not idle, its experiment is not RUNNING, the share would be exceeded, or a slot, the
            snapshot, an input or another value of the command cannot be used. Nothing has changed.
        NotYetError: A person has paused the job, it is in backoff, or the maximum number of jobs (`concurrency`) is already training.
            Nothing has changed.
    """
    job = command_checks.idle(stream, command.job)
    slots = _gang(stream, job, command)
    source = command.from_snapshot or stream.source_of(job)
    entry = command_checks.start(stream, source) if source is not None else None
    if entry is not None:
        command_checks.values(stream, entry, job.hyperparameters or {})
    start = source[1] if source is not None else 0
    training = command.mode is RunMode.TRAIN
    until = _until(job, command, start, saved=entry is not None)
    places = _places(stream, command, slots)

    why = Reason.of(ReasonCode.PLACED, slots=", ".join(command.slots))
    if source is not None:
        source, whose = _own(stream, job, source)
        entry, why = stream.snapshots.get(*source), why.plus(**whose)
    job.attempt += 1
    ranks = []
    for index, slot in enumerate(slots):
        channel = job.channels[job.attempt, index] = RunChannel(slot.node)
        ranks.append(Rank(slot.id, slot.node, channel))
    # Reports up to the high-water mark repeat those of earlier attempts, so they need no decision.
    allowed = max(command.allowed or 0, min(job.high_water, until), start)
    run = Run(
        job.id,
        job.attempt,
        command.mode,
        ranks,
        until,
        allowed,
        start,
        source,
        dict(command.inputs),
        command.preemptible,
        completes=training and not job.terms.ends_jobs and until == job.max_position,
        parts=command.parts,
        model=entry.info.sha256 if entry is not None else "",
        accounted=stream.now,
    )
    run.position = start
    job.run = stream.live[job.id] = run
    job.displaced = False
    if training:
        job.position = start
        if source is not None and source[0] != job.id and job.origin != source and not _continues(stream, job, source):
            if not prefix_join.rejoin(stream, job, source):
                stream.set_origin(job, source)
            job.high_water = max(job.high_water, start)
    if source is not None:
        stream.snapshots.pin(source, run.holder)
    for slot in slots:
        stream.occupy(slot, run)
    stream.move(job, JobState.STARTING, why)
    saves = tuple(s for s in command.snapshot_at if s > start)
    job.ask(saves)
    _send(stream, job, run, entry, saves, places)


def _until(job: Job, command: StartJob, start: int, *, saved: bool) -> int:
    """Return the position at which a run ends.

    Args:
        job: The job.
        command: The command of the policy.
        start: The position at which the run starts. A run that does not train also ends there.
        saved: Whether the run starts from a snapshot.

    Raises:
        RefusedError: The command's `until`, mode or `parts` (number of parts of an evaluation) is invalid.
    """
    if command.mode is RunMode.EVALUATE and not saved:
        raise RefusedError(Reason.of(ReasonCode.NOTHING_TO_EVALUATE, job=job.id))
    if command.parts and (command.mode is not RunMode.EVALUATE or set(command.inputs) != set(command.slots)):
        raise RefusedError(Reason(ReasonCode.PARTS_INVALID))
    if command.mode is not RunMode.TRAIN:
        return start
    until = job.max_position if command.until is None else command.until
    if not start < until <= job.max_position:
        code, most = ReasonCode.UNTIL_INVALID, job.max_position
        raise RefusedError(Reason.of(code, least=start + 1, most=most, job=job.id, found=until))
    return until


def _own(stream: Stream, job: Job, source: SnapshotId) -> tuple[SnapshotId, dict[str, Argument]]:
    """Return the id of the snapshot that a run of `job` loads, and arguments for the reason of the job's state (`Reason`).

    If `source` is a snapshot of another experiment, it is first copied to the job, and the arguments name its original owner. Else the
    arguments are empty.
    """
    name, position = source
    if name in stream.earlier:
        return earlier_results.take_over(stream, job, source), {"position": position, "trial": name}
    if group_results.is_one(stream, job, name) and not job.copied:
        return group_results.take_over(stream, job, source), {"position": position, "source": name}
    return source, {}


def _continues(stream: Stream, job: Job, source: tuple[str, int]) -> bool:
    """Return whether a job has reports up to the position of another job's snapshot, with the same metrics as the other job.

    Then a start from this snapshot need not record the other job as the origin of the results. `source` is the snapshot, as (id of the
    other job, position).
    """
    return job.high_water >= source[1] and prefix_join.agree(stream, job, stream.jobs[source[0]], source[1])


def _gang(stream: Stream, job: Job, command: StartJob) -> list[GrantedSlot]:
    """Return the slots that a command names, in its order.

    Raises:
        RefusedError: A slot cannot be used, the share would be exceeded, or the experiment is not RUNNING.
        NotYetError: The maximum number of jobs (`concurrency`) is already training.
    """
    if not job.experiment.running:
        raise RefusedError(Reason.of(ReasonCode.EXPERIMENT_NOT_RUNNING, state=job.experiment.state.value))
    if not command.slots or len(set(command.slots)) != len(command.slots):
        raise RefusedError(Reason.of(ReasonCode.SLOTS_INVALID, slots=str(list(command.slots))))
    unusable = [m for m in command.slots if m not in stream.slots or not stream.slots[m].idle]
    if unusable:
        raise RefusedError(Reason.of(ReasonCode.SLOTS_NOT_IDLE, slots=", ".join(unusable)))
    if stream.concurrency is not None and len(stream.live) >= stream.concurrency:
        code = ReasonCode.CONCURRENCY_REACHED
        raise NotYetError(Reason.of(code, jobs=len(stream.live), concurrency=stream.concurrency))
    if stream.placed + len(command.slots) > stream.share:
        raise RefusedError(Reason.of(ReasonCode.SHARE_EXCEEDED, share=stream.share, placed=stream.placed))
    return [stream.slots[m] for m in command.slots]


def _places(stream: Stream, command: StartJob, slots: list[GrantedSlot]) -> dict[str, Place]:
    """Return the location of the partition that the run's process on each slot reads, by slot id.

    An input is what a process reads: the name of a partition, or a path if the data is not partitioned. Slots for which the command has
    no input are left out. The result is empty if the data is not partitioned.

    Raises:
        RefusedError: An input is for a slot that the command does not name, or the slot's node cannot read the partition.
    """
    if stream.data is None:
        return {}
    if strange := [name for name in command.inputs if name not in command.slots]:
        raise RefusedError(Reason.of(ReasonCode.INPUTS_INVALID, slots=", ".join(strange)))
    found: dict[str, Place] = {}
    for slot in slots:
        if slot.id in command.inputs:
            place = stream.data.place(command.inputs[slot.id], slot.node)
            if isinstance(place, Reason):
                raise RefusedError(place)
            found[slot.id] = place
    return found


def _send(
    stream: Stream,
    job: Job,
    run: Run,
    entry: SnapshotEntry | None,
    snapshot_at: tuple[int, ...],
    places: Mapping[str, Place],
) -> None:
    for index, rank in enumerate(run.ranks):
        start = Start(
            slot=rank.slot,
            hyperparameters=job.hyperparameters or {},
            mode=run.mode,
            until=run.until,
            allowed=run.allowed,
            snapshot_at=snapshot_at if index == 0 else (),
            snapshot_every=job.terms.snapshot_every if index == 0 and run.mode is RunMode.TRAIN else 0,
            snapshot=entry.info if entry is not None else None,
            snapshot_nodes=tuple(sorted(entry.nodes)) if entry is not None else (),
            input=run.inputs.get(rank.slot, ""),
            rank_nodes=tuple(r.node for r in run.ranks),
            completes=run.completes,
            place=places.get(rank.slot),
            ships_by_order=job.terms.ship_every != 1,
        )
        stream.send(run, index, start)


def amend(stream: Stream, command: AmendRun) -> None:
    """Request a change of a run's `until` or of the positions at which it saves. The policy gets the run's answer in an up-call.

    If the run is known to have passed one of the positions, the policy gets the answer "not accepted" and the run gets no command.

    Raises:
        RefusedError: The run has ended, is ending or not training, or `until` is above the job's maximum position.
    """
    run, job = command_checks.run_of(stream, command.job), stream.jobs[command.job]
    if run.ending is not None:
        raise RefusedError(Reason.of(ReasonCode.RUN_ENDING, job=command.job))
    if run.mode is not RunMode.TRAIN:
        raise RefusedError(Reason.of(ReasonCode.RUN_NOT_TRAINING, job=command.job))
    if command.until is not None and command.until > job.max_position:
        raise RefusedError(Reason.of(ReasonCode.UNTIL_TOO_FAR, most=job.max_position, found=command.until))
    wanted = [p for p in (command.until, *command.snapshot_at) if p is not None]
    late = any(p < run.position or (p == run.position and not run.parked) for p in wanted)
    if late:  # The run would not accept the amendment.
        stream.call(AnswerReady(command.ticket, {"accepted": False, "position": run.position}))
        return
    run.amends[command.ticket] = (command.until, command.snapshot_at)
    stream.send(run, 0, Amend(command.ticket, command.until, command.snapshot_at))  # The other ranks follow rank 0.


_ENDINGS = {
    RunEndReason.SUSPENDED: DecisionKind.SUSPEND,
    RunEndReason.PREEMPTED: DecisionKind.SUSPEND,
    RunEndReason.TERMINATED: DecisionKind.TERMINATE,
}


def end_run(
    stream: Stream, run: Run, reason: RunEndReason, why: Reason | None = None, *, displaces: bool = False
) -> None:
    """Order a run to end at its next boundary.

    If the run is already ending, this only changes the reason, and only to TERMINATED. A TERMINATED run is killed if it has not ended
    after `kill_after` seconds.

    Args:
        stream: The stream of the run.
        run: The run.
        reason: SUSPENDED and PREEMPTED save a snapshot, TERMINATED does not.
        why: With TERMINATED, the reason of the job's state after the end; None: its policy ended it.
        displaces: Whether this is not a decision of the policy, so that the job must be displaced (`Job.displaced`).
    """
    if run.ending is RunEndReason.TERMINATED or (run.ending is not None and reason is not RunEndReason.TERMINATED):
        return
    run.ending, run.displaced = reason, displaces
    if reason is RunEndReason.TERMINATED:
        run.why = why or Reason.of(ReasonCode.TERMINATED, position=run.position)
    job = stream.jobs[run.job]
    if job.state is not JobState.SUSPENDING:
        leaving = {
            RunEndReason.PREEMPTED: ReasonCode.PREEMPTED_LEAVING,
            RunEndReason.TERMINATED: ReasonCode.TERMINATED_LEAVING,
        }.get(reason, ReasonCode.SAVING)
        stream.move(job, JobState.SUSPENDING, Reason(leaving))
    stream.send(run, 0, Decide(_ENDINGS[reason], run.position))
    if reason is RunEndReason.TERMINATED:
        stream.set_timer(kill_timer(run), stream.now + stream.settings.kill_after)


def displace(run: Run) -> None:
    """Record that a run loses its slots with a node. Its job must be displaced, unless the policy has decided the end of the run."""
    run.displaced = run.displaced or run.ending in (None, RunEndReason.UNTIL)


def kill_timer(run: Run) -> KillTimer:
    """Return the key of the timer after which the remaining processes of a run are killed."""
    return KillTimer(run.job, run.attempt)


def kill(stream: Stream, timer: KillTimer) -> None:
    """Kill the remaining processes of a run when its kill timer has elapsed. Does nothing if they have all left their slots."""
    job = stream.jobs.get(timer.job)
    run = job.run if job is not None else None
    if run is not None and run.attempt == timer.attempt:
        for index, rank in enumerate(run.ranks):
            if not rank.gone:
                stream.send(run, index, Kill(Reason(ReasonCode.GRACE_OVER)))


def decide(stream: Stream, run: Run, position: int, at_until: bool, decision: Decision) -> None:
    """Apply the policy's decision at a boundary. Does nothing if the run is ending or has ended.

    The caller must have carried out the commands in the same answer of the policy before.

    Args:
        stream: The stream of the run.
        run: The run.
        position: Position of the boundary.
        at_until: Whether the run waits at its `until`.
        decision: The decision.

    Raises:
        RefusedError: The decision is PARK, and the run has not reached its `until`.
    """
    if stream.live.get(run.job) is not run or run.ending is not None or run.ended is not None:
        return
    match decision.kind:
        case DecisionKind.SUSPEND:
            end_run(stream, run, RunEndReason.SUSPENDED)
        case DecisionKind.TERMINATE:
            end_run(stream, run, RunEndReason.TERMINATED)
        case DecisionKind.PARK:
            if not at_until:
                code = ReasonCode.PARK_BEFORE_UNTIL
                raise RefusedError(Reason.of(code, job=run.job, position=position, until=run.until))
            stream.send(run, 0, Decide(DecisionKind.PARK, position))
        case DecisionKind.CONTINUE:
            _go_on(stream, run, position, at_until, decision.up_to or 0)


def complete(stream: Stream, run: Run, position: int) -> None:
    """Let a run that waits at its `until`, the given position, save a snapshot and end.

    The run gets the command CONTINUE, which it obeys by ending, because it has reached its `until`. This function also serves runs that
    end at their `until` without a decision of the policy (`Run.completes`).
    """
    run.ending = RunEndReason.UNTIL
    job = stream.jobs[run.job]
    over = run.finished or position >= job.max_position
    reached = Reason.of(ReasonCode.UNTIL_REACHED_SAVING, position=position)
    stream.move(job, JobState.SUSPENDING, Reason(ReasonCode.TRAINED_SAVING) if over else reached)
    stream.send(run, 0, Decide(DecisionKind.CONTINUE, position))


def _go_on(stream: Stream, run: Run, position: int, at_until: bool, up_to: int) -> None:
    waits = position >= run.allowed
    allowed = max(run.allowed, up_to)
    if at_until and run.coming_until <= position:
        complete(stream, run, position)
    elif at_until or waits or allowed > run.allowed:
        run.allowed = allowed
        stream.send(run, 0, Decide(DecisionKind.CONTINUE, position, allowed))
