"""Tests that each service runs as a separate process, and that services may start in any order."""

from __future__ import annotations

from pathlib import Path

from hopyard._net.server.socket_folder import SocketFolder
from hopyard.client import AsyncClient
from hopyard.client.local_cluster.processes import ServiceProcess, ServiceSpec
from hopyard.client.types import ExperimentState
from tests.access import channel_as
from tests.e2e.harness import softmax_file
from tests.timing import HANG_SECONDS


async def test_agent_first_and_appstat_last(tmp_path: Path) -> None:
    data = tmp_path / "data"
    # The path of a socket is known before its service starts.
    names = ("appstat", "hpgen", "scheduler")
    appstat, hpgen, scheduler = (f"unix:{SocketFolder(data / name).path / name}.sock" for name in names)

    def service(name: str, module: str, *arguments: str) -> ServiceProcess:
        folder = data / name
        return ServiceProcess(
            ServiceSpec(name, module, ("--data", str(folder), *arguments), folder, name), data / "logs"
        )

    order = [
        service("agent", "hopyard_nodeagent", "--scheduler", scheduler, "--node", "n", "--slots", "1"),
        service("scheduler", "hopyard_scheduler", "--appstat", appstat, "--hpgen", hpgen),
        service("hpgen", "hopyard_hpgen"),
        service("appstat", "hopyard_appstat"),
    ]
    try:
        for process in order:
            process.service.data.mkdir(parents=True, exist_ok=True)
            await process.start()
        for process in order:
            await process.ready(HANG_SECONDS)
        file = softmax_file(tmp_path / "e", stop={"jobs": 2, "max_iterations": 2})
        async with AsyncClient(server=scheduler, patience=HANG_SECONDS) as client:
            experiment = await client.create(file)
            ended = await client.wait(experiment.id, timeout=HANG_SECONDS)
        assert ended.state is ExperimentState.COMPLETED, ended.reason
        await _answers_health_and_reflection([appstat, hpgen, scheduler])
    finally:
        for process in order:
            await process.stop(60)


async def _answers_health_and_reflection(addresses: list[str]) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]
    from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc  # type: ignore[import-untyped]

    for address in addresses:
        async with channel_as("user", address) as open_channel:
            health = await health_pb2_grpc.HealthStub(open_channel).Check(health_pb2.HealthCheckRequest())
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            ask = reflection_pb2.ServerReflectionRequest(list_services="")
            stub = reflection_pb2_grpc.ServerReflectionStub(open_channel)
            async for answer in stub.ServerReflectionInfo(iter([ask])):
                names = [s.name for s in answer.list_services_response.service]
                assert any(name.startswith("hopyard.v1.") for name in names)
                break
