"""Converts a policy's commands, answers and verdicts between Python objects and protobuf messages.

A 0 or empty field that means "none" becomes None, and vice versa. A verdict is the engine's reply to a command: whether it accepts it.
"""

from __future__ import annotations

import functools
import json
from dataclasses import fields
from typing import Any

from hopyard._common.bounded_json import read_json
from hopyard._net.rpc.enums import DECISIONS, RUN_MODES
from hopyard._net.rpc.reasons import reason_from_proto, set_reason
from hopyard._net.rpc.values import hyperparameters_from_proto, hyperparameters_to_proto
from hopyard.errors import InvalidInput
from hopyard.policy.invoke import UpCallResult
from hopyard.policy.vocabulary import (
    AmendRun,
    Answer,
    AnswerJob,
    Ask,
    BillRun,
    Command,
    CreateJob,
    Decision,
    EndExperiment,
    ForkJob,
    KeepSnapshots,
    LabelJob,
    Predict,
    ReleaseSlot,
    ReserveSlot,
    StartJob,
    SuspendJob,
    TerminateJob,
    Verdict,
    WakeAt,
)
from hopyard.v1 import policy_pb2 as pb


def command_to_proto(command: Command) -> pb.Command:
    """Return the message for a command of a policy.

    Raises:
        InvalidInput, TypeError, ValueError: A value cannot be converted.
    """
    _check_integers(command)
    match command:
        case ReserveSlot():
            return pb.Command(reserve_slot=pb.ReserveSlotCommand(slot=command.slot))
        case ReleaseSlot():
            return pb.Command(release_slot=pb.ReleaseSlotCommand(slot=command.slot))
        case CreateJob():
            create = pb.CreateJobCommand(job=command.job, experiment=command.experiment, limit=command.limit or 0)
            if command.hyperparameters is not None:
                create.hyperparameters.CopyFrom(hyperparameters_to_proto(command.hyperparameters))
            return pb.Command(create_job=create)
        case StartJob():
            return pb.Command(start_job=_start(command))
        case AmendRun():
            amend = pb.AmendRunCommand(
                job=command.job, ticket=command.ticket, until=command.until or 0, snapshot_at=command.snapshot_at
            )
            return pb.Command(amend_run=amend)
        case SuspendJob():
            return pb.Command(suspend_job=pb.SuspendJobCommand(job=command.job))
        case TerminateJob():
            return pb.Command(terminate_job=pb.TerminateJobCommand(job=command.job))
        case ForkJob():
            fork = pb.ForkJobCommand(
                job=command.job,
                parent=command.parent,
                position=command.position,
                hyperparameters=hyperparameters_to_proto(command.hyperparameters),
                experiment=command.experiment,
            )
            return pb.Command(fork_job=fork)
        case AnswerJob():
            answer = pb.AnswerJobCommand(
                job=command.job,
                source=command.source,
                position=command.position,
                keeps_waiting=not command.completes,
            )
            return pb.Command(answer_job=answer)
        case LabelJob():
            return pb.Command(label_job=pb.LabelJobCommand(job=command.job, priority=command.priority))
        case Predict():
            predict = pb.PredictCommand(
                ticket=command.ticket, job=command.job, parameters_json=json.dumps(dict(command.parameters))
            )
            return pb.Command(predict=predict)
        case Ask():
            ask = pb.AskCommand(
                ticket=command.ticket,
                kind=command.kind,
                payload_json=json.dumps(command.payload),
                seconds=command.seconds,
            )
            return pb.Command(ask=ask)
        case WakeAt():
            return pb.Command(wake_at=pb.WakeAtCommand(ticket=command.ticket, at=command.at))
        case EndExperiment():
            end = pb.EndExperimentCommand(reason=command.reason, winner=command.winner, experiment=command.experiment)
            return pb.Command(end_experiment=end)
        case BillRun():
            parts = [pb.BillRunCommand.Wanted(experiment=name, until=until) for name, until in command.wanted]
            return pb.Command(bill_run=pb.BillRunCommand(job=command.job, wanted=parts))
        case KeepSnapshots():
            return pb.Command(
                keep_snapshots=pb.KeepSnapshotsCommand(job=command.job, positions=list(command.positions))
            )


def _check_integers(command: Command) -> None:
    """Raise TypeError if an integer field of a command has a value of another type, such as 5.0.

    A message would convert such a value silently, and the journal must record the value that the policy gave.
    """
    kind: type = type(command)
    for name in _integers(kind):
        found = getattr(command, name)
        for one in found if isinstance(found, tuple) else (found,):
            if one is not None and type(one) is not int:
                raise TypeError(f"{kind.__name__}.{name}: found {one!r}, needed is int")


@functools.cache
def _integers(kind: type) -> tuple[str, ...]:
    """Return the names of the integer fields of the command class `kind`."""
    return tuple(one.name for one in fields(kind) if one.type in ("int", "int | None", "tuple[int, ...]"))


def _start(command: StartJob) -> pb.StartJobCommand:
    job, position = command.from_snapshot or ("", 0)
    return pb.StartJobCommand(
        job=command.job,
        slots=command.slots,
        until=command.until or 0,
        allowed=command.allowed or 0,
        snapshot_at=command.snapshot_at,
        inputs=command.inputs,
        mode=RUN_MODES.to_proto(command.mode),
        snapshot_job=job,
        snapshot_position=position,
        not_preemptible=not command.preemptible,
        parts=command.parts,
    )


def command_from_proto(message: pb.Command) -> Command:
    """Return the command of a policy in a message.

    Raises:
        InvalidInput: The message contains no command, one unknown to this version, or an invalid value.
    """
    kind = message.WhichOneof("command")
    match kind:
        case "reserve_slot":
            return ReserveSlot(message.reserve_slot.slot)
        case "release_slot":
            return ReleaseSlot(message.release_slot.slot)
        case "create_job":
            create = message.create_job
            given = hyperparameters_from_proto(create.hyperparameters) if create.HasField("hyperparameters") else None
            return CreateJob(create.job, given, create.experiment, create.limit or None)
        case "start_job":
            return _started(message.start_job)
        case "amend_run":
            amend = message.amend_run
            return AmendRun(amend.job, amend.ticket, amend.until or None, tuple(amend.snapshot_at))
        case "suspend_job":
            return SuspendJob(message.suspend_job.job)
        case "terminate_job":
            return TerminateJob(message.terminate_job.job)
        case "fork_job":
            fork = message.fork_job
            values = hyperparameters_from_proto(fork.hyperparameters)
            return ForkJob(fork.job, fork.parent, fork.position, values, fork.experiment)
        case "answer_job":
            answer = message.answer_job
            return AnswerJob(answer.job, answer.source, answer.position, not answer.keeps_waiting)
        case "label_job":
            return LabelJob(message.label_job.job, message.label_job.priority)
        case "predict":
            predict = message.predict
            parameters = plain(predict.parameters_json or "{}", "predict.parameters_json")
            if not isinstance(parameters, dict):
                raise InvalidInput(f"predict.parameters_json: needs an object, found {parameters!r:.80}")
            return Predict(predict.ticket, predict.job, parameters)
        case "ask":
            ask = message.ask
            return Ask(ask.ticket, ask.kind, plain(ask.payload_json or "null", "ask.payload_json"), ask.seconds or 60.0)
        case "wake_at":
            return WakeAt(message.wake_at.ticket, message.wake_at.at)
        case "end_experiment":
            end = message.end_experiment
            return EndExperiment(end.reason, end.winner, end.experiment)
        case "bill_run":
            bill = message.bill_run
            return BillRun(bill.job, tuple((part.experiment, part.until) for part in bill.wanted))
        case "keep_snapshots":
            return KeepSnapshots(message.keep_snapshots.job, tuple(message.keep_snapshots.positions))
    raise InvalidInput("command: none is set, or one that this version does not know")


def _started(start: pb.StartJobCommand) -> StartJob:
    return StartJob(
        job=start.job,
        slots=tuple(start.slots),
        until=start.until or None,
        allowed=start.allowed or None,
        snapshot_at=tuple(start.snapshot_at),
        inputs={slot: start.inputs[slot] for slot in sorted(start.inputs)},
        mode=RUN_MODES.from_proto(start.mode, field="start_job.mode"),
        from_snapshot=(start.snapshot_job, start.snapshot_position) if start.snapshot_job else None,
        preemptible=not start.not_preemptible,
        parts=start.parts,
    )


def answer_to_proto(said: UpCallResult) -> pb.Answer:
    """Return the message for `said`, the policy's answer to an up-call.

    Raises:
        InvalidInput, TypeError, ValueError: A value cannot be converted.
    """
    answer, message = said.answer, pb.Answer(number=said.answer.number, gang=said.gang, nodes=said.nodes)
    if answer.decision is not None:
        message.decision = DECISIONS.to_proto(answer.decision.kind)
        message.up_to = answer.decision.up_to or 0
    if said.demand is not None:
        message.demand = said.demand
    message.commands.extend(map(command_to_proto, answer.commands))
    return message


def answer_from_proto(message: pb.Answer) -> UpCallResult:
    """Return the policy's answer to an up-call from a message.

    The caller must have handled a message whose field `error` is set, which means that the policy failed; the field is not read here.

    Raises:
        InvalidInput: A value is invalid.
    """
    decision = None
    if message.decision:
        decision = Decision(DECISIONS.from_proto(message.decision, field="decision"), message.up_to or None)
    commands = tuple(command_from_proto(command) for command in message.commands)
    demand = message.demand if message.HasField("demand") else None
    if message.gang < 0 or (demand is not None and demand < 0):
        raise InvalidInput(f"demand and gang are at least 0, found {demand} and {message.gang}")
    return UpCallResult(
        Answer(message.number, decision, commands), demand, message.gang or 1, tuple(sorted(set(message.nodes)))
    )


def verdict_to_proto(verdict: Verdict) -> pb.Verdict:
    """Return the message for the engine's verdict on a command: whether it was accepted, and the reason if not."""
    message = pb.Verdict(accepted=verdict.accepted, command=command_to_proto(verdict.command))
    set_reason(message, verdict.reason)
    return message


def verdict_from_proto(message: pb.Verdict) -> Verdict:
    """Return the engine's verdict on a command (whether it was accepted, and the reason if not) from a message.

    Raises:
        InvalidInput: The command in the message is invalid.
    """
    reason = reason_from_proto(message.reason_code, message.reason_args)
    return Verdict(command_from_proto(message.command), message.accepted, reason)


def plain(text: str, field: str) -> Any:
    """Return the value of a JSON text.

    Args:
        text: The JSON text.
        field: Name of the message field with the text, for the error message.

    Raises:
        InvalidInput: The text is not JSON, or exceeds a limit of `read_json`.
    """
    try:
        return read_json(text)
    except ValueError as error:
        raise InvalidInput(f"{field}: {error}") from None
