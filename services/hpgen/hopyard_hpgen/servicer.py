"""The gRPC servicer of HyperparameterGeneratorService: converts requests, calls `GeneratorHost`, converts responses."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc.aio

from hopyard._net.rpc.values import metrics_from_proto
from hopyard.errors import InvalidInput
from hopyard.spec import spec_from_json
from hopyard.v1 import hpgen_pb2, hpgen_pb2_grpc
from hopyard_hpgen import converters
from hopyard_hpgen.host import GeneratorHost

SERVICE = "hopyard.v1.HyperparameterGeneratorService"
"""Full name of the service, for health checks and reflection."""

_LONGEST_SPEC: Final = 16 * 1024 * 1024


class HpgenServicer(hpgen_pb2_grpc.HyperparameterGeneratorServiceServicer):
    """Implements the RPCs of the service; the proto file defines their guarantees.

    Args:
        host: The generators on which the RPCs operate.
    """

    def __init__(self, host: GeneratorHost) -> None:
        self._host = host

    async def OpenGenerator(
        self,
        request: hpgen_pb2.OpenGeneratorRequest,
        context: grpc.aio.ServicerContext[hpgen_pb2.OpenGeneratorRequest, hpgen_pb2.OpenGeneratorResponse],
    ) -> hpgen_pb2.OpenGeneratorResponse:
        """Open the generator of an experiment, or repeat further recorded calls on it if the request is `continued`."""
        calls = converters.calls_from_proto(request.calls)
        if request.continued:
            terms = await self._host.replay_calls(request.experiment, calls, more=request.more)
        else:
            if len(request.spec_json) > _LONGEST_SPEC:
                raise InvalidInput(f"spec_json: found {len(request.spec_json)} characters, allowed are {_LONGEST_SPEC}")
            spec = await asyncio.to_thread(spec_from_json, request.spec_json)
            terms = await self._host.open(request.experiment, spec, calls, more=request.more)
        return converters.open_response(terms)

    async def CreateJob(
        self,
        request: hpgen_pb2.CreateJobRequest,
        context: grpc.aio.ServicerContext[hpgen_pb2.CreateJobRequest, hpgen_pb2.CreateJobResponse],
    ) -> hpgen_pb2.CreateJobResponse:
        """Return the configuration of a job, or that the generator is exhausted."""
        configuration = await self._host.create_job(request.experiment, request.job)
        return converters.create_response(request.job, configuration)

    async def ReportPerformance(
        self,
        request: hpgen_pb2.ReportPerformanceRequest,
        context: grpc.aio.ServicerContext[hpgen_pb2.ReportPerformanceRequest, hpgen_pb2.ReportPerformanceResponse],
    ) -> hpgen_pb2.ReportPerformanceResponse:
        """Report an intermediate result of a job to the generator."""
        metrics = metrics_from_proto(request.metrics)
        await self._host.report_performance(request.experiment, request.job, request.position, metrics)
        return hpgen_pb2.ReportPerformanceResponse()

    async def ReportFinalPerformance(
        self,
        request: hpgen_pb2.ReportFinalPerformanceRequest,
        context: grpc.aio.ServicerContext[
            hpgen_pb2.ReportFinalPerformanceRequest, hpgen_pb2.ReportFinalPerformanceResponse
        ],
    ) -> hpgen_pb2.ReportFinalPerformanceResponse:
        """Report the final result of a job to the generator."""
        result = converters.result_from_proto(request)
        await self._host.report_final_performance(request.experiment, request.job, result)
        return hpgen_pb2.ReportFinalPerformanceResponse()

    async def CloseGenerator(
        self,
        request: hpgen_pb2.CloseGeneratorRequest,
        context: grpc.aio.ServicerContext[hpgen_pb2.CloseGeneratorRequest, hpgen_pb2.CloseGeneratorResponse],
    ) -> hpgen_pb2.CloseGeneratorResponse:
        """Close the generator of an experiment, if it is open."""
        await self._host.forget(request.experiment)
        return hpgen_pb2.CloseGeneratorResponse()
