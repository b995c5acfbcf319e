"""Tests of the generator service (hpgen) over gRPC: calls, errors, health, reflection, and a restart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

from hopyard._net.rpc import Channel
from hopyard._net.rpc.values import hyperparameters_from_proto
from hopyard.errors import Conflict, InvalidInput, NotFound, Unavailable
from hopyard.spec import canonical_json, load_spec
from hopyard.v1 import hpgen_pb2, hpgen_pb2_grpc
from hopyard_hpgen.service import HpgenService
from hopyard_hpgen.servicer import SERVICE
from tests.access import channel_as

if TYPE_CHECKING:  # Only the stub files define the asynchronous class; at run time one class serves both.
    from hopyard.v1.hpgen_pb2_grpc import HyperparameterGeneratorServiceAsyncStub as Stub

SPEC = canonical_json(
    load_spec(
        """
        name: digits
        command: [python, train.py]
        metric: {name: accuracy, mode: max}
        space: {lr: {loguniform: [1e-4, 1]}, batch_size: {choice: [32, 64]}}
        generator: {name: random, seed: 7}
        stop: {jobs: 10}
        """
    )
)
GRID = canonical_json(
    load_spec(
        """
        name: digits
        command: [python, train.py]
        metric: {name: accuracy, mode: max}
        space: {batch_size: {choice: [32, 64]}}
        generator: grid
        """
    )
)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[HpgenService]:
    made = HpgenService(data=tmp_path)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def line(service: HpgenService) -> AsyncIterator[Channel]:
    async with channel_as("service", service.address) as made:
        yield made


@pytest.fixture
def stub(line: Channel) -> Stub:
    return hpgen_pb2_grpc.HyperparameterGeneratorServiceStub(line)


async def create(stub: Stub, experiment: str, job: str) -> dict[str, object] | None:
    response = await stub.CreateJob(hpgen_pb2.CreateJobRequest(experiment=experiment, job=job))
    assert response.job == job
    return None if response.exhausted else hyperparameters_from_proto(response.hyperparameters)


async def test_a_whole_grid(stub: Stub) -> None:
    opened = await stub.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment="e", spec_json=GRID))
    assert opened.size == 2
    found = [await create(stub, "e", job) for job in ("a", "b", "c", "a")]
    assert found == [{"batch_size": 32}, {"batch_size": 64}, None, {"batch_size": 32}]
    await stub.ReportPerformance(
        hpgen_pb2.ReportPerformanceRequest(experiment="e", job="a", position=1, metrics={"accuracy": float("nan")})
    )
    await stub.ReportFinalPerformance(hpgen_pb2.ReportFinalPerformanceRequest(experiment="e", job="a"))
    await stub.CloseGenerator(hpgen_pb2.CloseGeneratorRequest(experiment="e"))
    with pytest.raises(NotFound, match="open it again with its recorded calls"):
        await create(stub, "e", "a")


async def test_it_goes_on_after_a_restart_as_if_nothing_had_happened(stub: Stub) -> None:
    whole = hpgen_pb2.OpenGeneratorRequest(experiment="whole", spec_json=SPEC)
    opened = await stub.OpenGenerator(whole)
    assert not opened.HasField("size")
    proposals = [await create(stub, "whole", str(job)) for job in range(6)]

    calls = list[hpgen_pb2.GeneratorCall]()
    first = HpgenService()
    async with channel_as("service", await first.start()) as line:
        early: Stub = hpgen_pb2_grpc.HyperparameterGeneratorServiceStub(line)
        await early.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment="e", spec_json=SPEC))
        for job in map(str, range(3)):
            response = await early.CreateJob(hpgen_pb2.CreateJobRequest(experiment="e", job=job))
            record = hpgen_pb2.RecordedCreate(job=job, hyperparameters=response.hyperparameters)
            calls.append(hpgen_pb2.GeneratorCall(create=record))
            report = hpgen_pb2.ReportPerformanceRequest(experiment="e", job=job, position=1, metrics={"accuracy": 0.5})
            await early.ReportPerformance(report)
            calls.append(hpgen_pb2.GeneratorCall(report=report))
        await first.stop()
        with pytest.raises(Unavailable):
            await create(early, "e", "3")

    with pytest.raises(NotFound):
        await create(stub, "e", "3")
    await stub.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment="e", spec_json=SPEC, calls=calls))
    assert [await create(stub, "e", str(job)) for job in range(6)] == proposals


async def test_errors_keep_their_class_and_say_what_to_do(stub: Stub) -> None:
    with pytest.raises(InvalidInput, match="is not JSON"):
        await stub.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment="e", spec_json="{"))
    text = SPEC.replace('"name":"random"', '"name":"randm"')
    with pytest.raises(InvalidInput, match=r"did you mean random\?"):
        await stub.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment="e", spec_json=text))
    with pytest.raises(InvalidInput, match="experiment: needs an id"):
        await stub.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(spec_json=SPEC))
    call = hpgen_pb2.GeneratorCall(create=hpgen_pb2.RecordedCreate(job="a"))
    with pytest.raises(Conflict, match="not deterministic"):
        await stub.OpenGenerator(hpgen_pb2.OpenGeneratorRequest(experiment="e", spec_json=SPEC, calls=[call]))


async def test_health_and_reflection(service: HpgenService) -> None:
    async with channel_as("user", service.address) as opened:
        health = health_pb2_grpc.HealthStub(opened)
        answer = await health.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(opened)
        asked = reflection.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answers = [answer async for answer in asked]
        assert SERVICE in {service.name for service in answers[0].list_services_response.service}


async def test_stopping_twice_is_safe(tmp_path: Path) -> None:
    service = HpgenService(data=tmp_path)
    address = await service.start()
    assert (tmp_path / "hpgen.address").read_text().strip() == address == service.address
    await service.stop()
    await service.stop()
    assert not (tmp_path / "hpgen.address").exists()


async def test_listening_beyond_this_machine_needs_to_be_said() -> None:
    with pytest.raises(Conflict, match=r"refusing to listen on 0\.0\.0\.0"):
        HpgenService(host="0.0.0.0")
