"""Converts up-calls (calls of the engine to a policy) between Python objects and protobuf messages."""

from __future__ import annotations

import json
from typing import Any, cast

from hopyard._net.rpc.enums import RUN_END_REASONS, RUN_MODES
from hopyard._net.rpc.reasons import code_to_proto, fill_args, reason_from_proto
from hopyard._net.rpc.values import (
    hyperparameters_from_proto,
    hyperparameters_to_proto,
    report_from_proto,
    report_to_proto,
)
from hopyard._runtime.policy_process.commands import plain
from hopyard.errors import InvalidInput
from hopyard.policy.vocabulary import (
    AllocateJobs,
    AnswerReady,
    ApplicationStat,
    Call,
    ExperimentChange,
    GeneratorExhausted,
    IterationFinish,
    JobCreated,
    PredictionReady,
    RequestMade,
    RunEnd,
    ShareChange,
    SlotsChange,
    TimerFired,
)
from hopyard.policy.vocabulary.reasons import explain
from hopyard.v1 import policy_pb2 as pb


def fill_call(message: pb.UpCall, call: Call) -> None:
    """Write the up-call `call` into `message`."""
    match call:
        case AllocateJobs():
            message.allocate_jobs.SetInParent()
        case ApplicationStat():
            stat = pb.ApplicationStat(
                job=call.job, report=report_to_proto(call.report), input=call.input, mode=RUN_MODES.to_proto(call.mode)
            )
            message.application_stat.CopyFrom(stat)
        case IterationFinish():
            finish = pb.IterationFinish(
                job=call.job, report=report_to_proto(call.report), repeated_position=call.repeated
            )
            message.iteration_finish.CopyFrom(finish)
        case RunEnd():
            end = pb.RunEnd(
                job=call.job,
                attempt=call.attempt,
                reason=RUN_END_REASONS.to_proto(call.reason),
                position=call.position,
                resume_position=call.resume_position,
                message=explain(call.cause),
                mode=RUN_MODES.to_proto(call.mode),
                reason_code=code_to_proto(call.cause),
            )
            fill_args(end.reason_args, call.cause)
            message.run_end.CopyFrom(end)
        case JobCreated():
            message.job_created.job = call.job
        case GeneratorExhausted():
            message.generator_exhausted.job = call.job
        case PredictionReady():
            prediction = pb.PredictionReady(
                ticket=call.ticket, job=call.job, result_json=_json(call.result), error=call.error
            )
            message.prediction.CopyFrom(prediction)
        case AnswerReady():
            ready = pb.AnswerReady(ticket=call.ticket, result_json=_json(call.result), error=call.error)
            message.answer_ready.CopyFrom(ready)
        case RequestMade():
            request = pb.RequestMade(
                ticket=call.ticket,
                hyperparameters=hyperparameters_to_proto(call.hyperparameters),
                position=call.position,
                job=call.job,
                more=call.more,
            )
            message.request.CopyFrom(request)
        case ShareChange():
            message.share_change.CopyFrom(pb.ShareChange(slots=call.slots, deadline=call.deadline or 0.0))
        case SlotsChange():
            message.slots_change.CopyFrom(pb.SlotsChange(joined=call.joined, lost=call.lost))
        case ExperimentChange():
            change = pb.ExperimentChange(change=call.change, experiment=call.experiment)
            message.experiment_change.CopyFrom(change)
        case TimerFired():
            message.timer.ticket = call.ticket


def call_from_proto(message: pb.UpCall) -> Call:
    """Return the up-call in a message.

    Raises:
        InvalidInput: The message contains no up-call, or one unknown to this version.
    """
    kind = message.WhichOneof("call")
    match kind:
        case "allocate_jobs":
            return AllocateJobs()
        case "application_stat":
            stat = message.application_stat
            return ApplicationStat(
                stat.job, report_from_proto(stat.report), stat.input, RUN_MODES.from_proto(stat.mode)
            )
        case "iteration_finish":
            finish = message.iteration_finish
            return IterationFinish(finish.job, report_from_proto(finish.report), finish.repeated_position)
        case "run_end":
            end = message.run_end
            reason, mode = RUN_END_REASONS.from_proto(end.reason), RUN_MODES.from_proto(end.mode)
            cause = reason_from_proto(end.reason_code, end.reason_args)
            return RunEnd(end.job, end.attempt, reason, end.position, end.resume_position, cause, mode)
        case "job_created":
            return JobCreated(message.job_created.job)
        case "generator_exhausted":
            return GeneratorExhausted(message.generator_exhausted.job)
        case "prediction":
            ready = message.prediction
            return PredictionReady(ready.ticket, ready.job, _plain(ready.result_json), ready.error)
        case "answer_ready":
            answer = message.answer_ready
            return AnswerReady(answer.ticket, _plain(answer.result_json), answer.error)
        case "request":
            request = message.request
            values = hyperparameters_from_proto(request.hyperparameters)
            return RequestMade(request.ticket, values, request.position, request.job, request.more)
        case "share_change":
            return ShareChange(message.share_change.slots, message.share_change.deadline or None)
        case "slots_change":
            return SlotsChange(tuple(message.slots_change.joined), tuple(message.slots_change.lost))
        case "experiment_change":
            said = message.experiment_change
            return ExperimentChange(cast("Any", said.change), said.experiment)
        case "timer":
            return TimerFired(message.timer.ticket)
    raise InvalidInput("up-call: none is set, or one that this version does not know")


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value)


def _plain(text: str) -> Any:
    return plain(text, "result_json") if text else None
