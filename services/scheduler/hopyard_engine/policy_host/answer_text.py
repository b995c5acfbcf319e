"""Texts for people that describe up-calls, commands and answers of policies, and messages about nodes."""

from __future__ import annotations

import math
from typing import assert_never

from hopyard._common.formatting import count, hyperparameters
from hopyard.policy.vocabulary import (
    AllocateJobs,
    AmendRun,
    AnswerJob,
    AnswerReady,
    ApplicationStat,
    Ask,
    BillRun,
    Call,
    Command,
    CreateJob,
    Decision,
    EndExperiment,
    ExperimentChange,
    ForkJob,
    GeneratorExhausted,
    IterationFinish,
    JobCreated,
    KeepSnapshots,
    LabelJob,
    Predict,
    PredictionReady,
    ReleaseSlot,
    RequestMade,
    ReserveSlot,
    RunEnd,
    RunKey,
    RunMode,
    ShareChange,
    SlotsChange,
    StartJob,
    SuspendJob,
    TerminateJob,
    TimerFired,
    WakeAt,
)
from hopyard_engine.core.events import PolicyAnswered, PolicyFailed, SnapshotShipped, StreamEvent
from hopyard_engine.core.types import PlacedPartition


def told(call: Call) -> str:
    """Return a description of an up-call that completes the sentence "the policy was ...", such as "offered idle slots"."""
    match call:
        case AllocateJobs():
            return "offered idle slots"
        case ApplicationStat(mode=RunMode.PROFILE):
            return f"informed that a unit of job {call.job} takes {call.report.metrics.get('seconds', math.nan):.3g} s"
        case ApplicationStat():
            return f"informed about job {call.job} at {call.report.position}"
        case IterationFinish():
            again = " again" if call.repeated else ""
            return f"asked{again} about job {call.job} at {'its until ' if call.at_until else ''}{call.position}"
        case RunEnd():
            return f"informed that run {call.attempt} of job {call.job} ended {call.reason.value} at {call.position}"
        case JobCreated():
            return f"informed about the new job {call.job}"
        case GeneratorExhausted():
            return f"informed that the generator has no configuration for job {call.job}"
        case PredictionReady():
            return f"given the prediction for job {call.job}" + (f", which failed: {call.error}" if call.error else "")
        case AnswerReady():
            return f"given the answer to {call.ticket}" + (f", an error: {call.error}" if call.error else "")
        case RequestMade():
            made = f", job {call.job}" if call.job else ""
            return f"asked for {hyperparameters(call.hyperparameters)} at {call.position}{made}"
        case ShareChange():
            return f"informed that its share is {count(call.slots, 'slot')}"
        case SlotsChange():
            changes = [f"{', '.join(call.joined)} joined"] if call.joined else []
            changes += [f"{', '.join(call.lost)} left"] if call.lost else []
            return f"informed that {' and '.join(changes) or 'partitions are held by other nodes'}"
        case ExperimentChange():
            what = {"target": "has another target", "joined": "joined", "ended": "ended"}.get(
                call.change, f"is {call.change}"
            )
            which = f"experiment {call.experiment}" if call.change in ("joined", "ended") else "the experiment"
            return f"informed that {which} {what}"
        case TimerFired():
            return f"informed that timer {call.ticket} has elapsed"
        case _:
            assert_never(call)


def job_of_call(call: Call) -> str:
    """Return the id of the job that an up-call is about; "" if it is about no job."""
    return getattr(call, "job", "")


def decision(given: Decision) -> str:
    """Return a decision as text, such as `CONTINUE up to 10`."""
    return given.kind.value + (f" up to {given.up_to}" if given.up_to is not None else "")


def command(given: Command) -> str:
    """Return a description of a command that completes the sentence "the policy ...", such as "suspends job 3"."""
    match given:
        case ReserveSlot():
            return f"reserves slot {given.slot}"
        case ReleaseSlot():
            return f"releases slot {given.slot}"
        case CreateJob():
            with_what = f" with {hyperparameters(given.hyperparameters)}" if given.hyperparameters is not None else ""
            up_to = f", complete at {given.limit}" if given.limit is not None else ""
            return f"creates job {given.job}{_for(given)}{with_what}{up_to}"
        case StartJob():
            return _start(given)
        case AmendRun():
            moved = [f"moves its until to {given.until}"] if given.until is not None else []
            moved += [f"saves at {_positions(given.snapshot_at)}"] if given.snapshot_at else []
            return f"amends the run of job {given.job} ({given.ticket}): {', '.join(moved) or 'nothing'}"
        case SuspendJob():
            return f"suspends job {given.job}"
        case TerminateJob():
            return f"terminates job {given.job}"
        case ForkJob():
            values = hyperparameters(given.hyperparameters)
            return f"forks job {given.job}{_for(given)} from job {given.parent} at {given.position} with {values}"
        case AnswerJob():
            does = "completes" if given.completes else "answers"
            return f"{does} job {given.job} from job {given.source}'s results up to {given.position}"
        case LabelJob():
            return f"gives job {given.job} priority {given.priority:g}"
        case Predict():
            return f"asks for a prediction of job {given.job} ({given.ticket})"
        case Ask():
            return f"asks solver {given.kind} ({given.ticket}), with a limit of {given.seconds:g} s"
        case WakeAt():
            return f"sets timer {given.ticket}"
        case EndExperiment():
            which = f" {given.experiment}" if given.experiment else ""
            winner = f"; the winner is job {given.winner}" if given.winner else ""
            return f"ends the experiment{which}: {given.reason}{winner}"
        case BillRun():
            whom = " and ".join(f"{name} up to {until}" for name, until in given.wanted) or "its own experiment"
            return f"bills the run of job {given.job} to {whom}"
        case KeepSnapshots():
            but = f" except those at {_positions(given.positions)}" if given.positions else ""
            return f"releases the snapshots of job {given.job}{but}"
        case _:
            assert_never(given)


def job_of_command(given: Command) -> str:
    """Return the id of the job that a command is about; "" if it is about no job."""
    return getattr(given, "job", "")


def _start(given: StartJob) -> str:
    verb = {RunMode.TRAIN: "starts", RunMode.EVALUATE: "evaluates", RunMode.PROFILE: "profiles"}[given.mode]
    parts = [f"{verb} job {given.job} on {', '.join(given.slots)}"]
    if given.until is not None:
        parts.append(f"up to {given.until}")
    if given.from_snapshot is not None:
        parts.append(f"from job {given.from_snapshot[0]}'s snapshot at {given.from_snapshot[1]}")
    if given.allowed is not None:
        parts.append(f"without a decision before {given.allowed}")
    if given.snapshot_at:
        parts.append(f"saving at {_positions(given.snapshot_at)}")
    if given.inputs:
        on = {slot: f" on {slot}" if len(given.slots) > 1 else "" for slot in given.inputs}
        parts.append("with " + ", ".join(f"{part}{on[slot]}" for slot, part in given.inputs.items()))
    if not given.preemptible:
        parts.append("not to be preempted")
    return " ".join(parts)


def _for(given: CreateJob | ForkJob) -> str:
    """Return " for experiment ..." if the command names the experiment of a new job, else ""."""
    return f" for experiment {given.experiment}" if given.experiment else ""


def _positions(positions: tuple[int, ...]) -> str:
    return ", ".join(map(str, positions))


def answer(event: StreamEvent) -> str:
    """Return a description of a policy's answer: its decision, its commands in order, and its demand.

    A failure is described by its reason, any other event by its class name.
    """
    match event:
        case PolicyAnswered():
            parts = [decision(event.answer.decision)] if event.answer.decision is not None else []
            parts += [f"it {command(one)}" for one in event.answer.commands]
            if event.demand is not None:
                parts.append(f"it could use {count(event.demand, 'slot')}")
            if event.nodes:
                parts.append(f"on {', '.join(event.nodes)} only")
            if event.gang > 1:
                parts.append(f"{event.gang} of them at once")
            return ", ".join(parts) or "no command"
        case PolicyFailed():
            return f"the failure {event.reason}"
        case _:
            return f"the event {type(event).__name__}"


def discarded(node: str, run: RunKey) -> str:
    """Return the sentence for a run that an agent discarded because the cluster was restored from a backup in the meantime."""
    return (
        f"the cluster was restored from a backup while node {node} kept running, so run {run.attempt} of job {run.job} is ended there, "
        "and its reports since the backup are discarded"
    )


def unwanted(node: str, run: RunKey, attempt: int) -> str:
    """Return the sentence for a run that a node still has, although the engine has closed it: the run is ended on the node.

    Args:
        node: Name of the node, which has opened a session again.
        run: The channel of the run's process.
        attempt: Number of the job's newest attempt. If the run has another number, the sentence says at which attempt the job is; else
            it says that the run was given up.
    """
    now = f"the job is at attempt {attempt}" if attempt != run.attempt else "that run was given up"
    return (
        f"run {run.attempt} of job {run.job}, which node {node} still has, is ended there, "
        f"and its messages since then are refused; {now}"
    )


def partition(one: PlacedPartition) -> str:
    """Return a sentence that names the live nodes with a replica of a partition.

    Without such nodes it says that no node has read the partition from its URL yet or, if it has no URL, that no live node has it.
    """
    if one.places:
        return f"partition {one.name} is on {', '.join(sorted(one.places))}"
    return f"no node has read partition {one.name} yet" if one.url else f"no live node holds partition {one.name}"


def ship(node: str, job: str, position: int) -> str:
    """Return a sentence that `node` is ordered to upload the snapshot of `job` at `position`."""
    return f"node {node} is ordered to upload the snapshot of job {job} at {position}"


def shipped(event: SnapshotShipped) -> str:
    """Return a sentence with the node's answer to an upload order: success, or the error."""
    what = f"the snapshot of job {event.job} at {event.position}"
    if event.error:
        return f"node {event.node} could not upload {what}: {event.error}"
    return f"node {event.node} uploaded {what}"
