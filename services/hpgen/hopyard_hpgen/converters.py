"""Converts between the protobuf messages of the service and its domain objects."""

from __future__ import annotations

from collections.abc import Iterable

from hopyard._net.rpc.enums import GENERATOR_READS, JOB_STATES
from hopyard._net.rpc.values import hyperparameters_from_proto, hyperparameters_to_proto, metrics_from_proto
from hopyard.errors import InvalidInput
from hopyard.generator import Result
from hopyard.policy.vocabulary import JobState
from hopyard.space import Configuration
from hopyard.space.values import json_problem
from hopyard.v1 import common_pb2, hpgen_pb2
from hopyard_hpgen.call_log import Call, CreateCall, ReportCall, ReportFinalCall
from hopyard_hpgen.experiment_generator import GeneratorTerms


def calls_from_proto(messages: Iterable[hpgen_pb2.GeneratorCall]) -> list[Call]:
    """Convert recorded calls, in order.

    Raises:
        InvalidInput: A message contains no call, a configuration is not JSON, or the outcome of a final result is not a final state.
    """
    return [_call_from_proto(index, message) for index, message in enumerate(messages)]


def calls_to_proto(calls: Iterable[Call]) -> list[hpgen_pb2.GeneratorCall]:
    """Convert recorded calls to messages, in order. The id of the experiment is left empty; set it in the request with the messages."""
    return [_call_to_proto(call) for call in calls]


def open_response(terms: GeneratorTerms) -> hpgen_pb2.OpenGeneratorResponse:
    """Return the response to OpenGenerator with the properties of the opened generator."""
    return hpgen_pb2.OpenGeneratorResponse(size=terms.size, reads=GENERATOR_READS.to_proto(terms.reads))


def create_response(job: str, configuration: Configuration | None) -> hpgen_pb2.CreateJobResponse:
    """Return the response to CreateJob with a job's configuration, or that the generator is exhausted if `configuration` is None."""
    if configuration is None:
        return hpgen_pb2.CreateJobResponse(job=job, exhausted=True)
    return hpgen_pb2.CreateJobResponse(job=job, hyperparameters=hyperparameters_to_proto(configuration))


def result_from_proto(message: hpgen_pb2.ReportFinalPerformanceRequest) -> Result:
    """Convert the final result of a job. A missing outcome means COMPLETED.

    Raises:
        InvalidInput: The outcome is not COMPLETED, TERMINATED or FAILED, or the configuration is not JSON.
    """
    outcome = JOB_STATES.from_proto(message.outcome) if message.outcome else JobState.COMPLETED
    if not outcome.ended:
        raise InvalidInput(f"job {message.job}: outcome: needs COMPLETED, TERMINATED or FAILED, found {outcome.value}")
    foreign = message.HasField("hyperparameters")
    return Result(
        metrics_from_proto(message.metrics),
        outcome,
        message.position,
        _configuration(message.job, message.hyperparameters) if foreign else None,
    )


def _configuration(job: str, message: common_pb2.Hyperparameters) -> Configuration:
    """Convert the configuration of a job. Raise InvalidInput if it is not JSON, such as one with a number that is not finite."""
    found = hyperparameters_from_proto(message)
    if problem := json_problem(found):
        raise InvalidInput(f"job {job}: hyperparameters: needs JSON values, but {problem}")
    return found


def _call_from_proto(index: int, message: hpgen_pb2.GeneratorCall) -> Call:
    match message.WhichOneof("call"):
        case "create":
            create = message.create
            proposed = create.HasField("hyperparameters")
            return CreateCall(create.job, _configuration(create.job, create.hyperparameters) if proposed else None)
        case "report":
            report = message.report
            return ReportCall(report.job, report.position, metrics_from_proto(report.metrics))
        case "report_final":
            return ReportFinalCall(message.report_final.job, result_from_proto(message.report_final))
    raise InvalidInput(f"calls[{index}]: needs one of create, report, report_final; found none")


def _call_to_proto(call: Call) -> hpgen_pb2.GeneratorCall:
    if isinstance(call, CreateCall):
        create = hpgen_pb2.RecordedCreate(job=call.job)
        if call.hyperparameters is not None:
            create.hyperparameters.CopyFrom(hyperparameters_to_proto(call.hyperparameters))
        return hpgen_pb2.GeneratorCall(create=create)
    if isinstance(call, ReportCall):
        report = hpgen_pb2.ReportPerformanceRequest(job=call.job, position=call.position, metrics=call.metrics)
        return hpgen_pb2.GeneratorCall(report=report)
    result = call.result
    final = hpgen_pb2.ReportFinalPerformanceRequest(
        job=call.job, metrics=result.metrics, position=result.position, outcome=JOB_STATES.to_proto(result.outcome)
    )
    if result.hyperparameters is not None:
        final.hyperparameters.CopyFrom(hyperparameters_to_proto(result.hyperparameters))
    return hpgen_pb2.GeneratorCall(report_final=final)
