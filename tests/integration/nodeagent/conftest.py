"""Fixtures: a cluster with a fake scheduler and a fake store, to which agents connect."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hopyard._net.server import Server
from hopyard.v1 import appstat_pb2_grpc, resource_manager_pb2_grpc
from tests.conftest import require_criu
from tests.integration.nodeagent.cluster import Cluster
from tests.integration.nodeagent.fakes import FakeScheduler, FakeStore


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    scheduler, store = FakeScheduler(), FakeStore()  # type: ignore[abstract]
    servers = Server("scheduler"), Server("appstat")
    servers[0].add(
        resource_manager_pb2_grpc.add_ResourceManagerServiceServicer_to_server,
        scheduler,
        "hopyard.v1.ResourceManagerService",
    )
    servers[1].add(appstat_pb2_grpc.add_AppStatServiceServicer_to_server, store, "hopyard.v1.AppStatService")
    addresses = [await server.start() for server in servers]
    cluster = Cluster(scheduler, store, addresses[0], addresses[1], tmp_path)
    try:
        yield cluster
    finally:
        try:
            await cluster.stop()
        finally:
            for server in servers:
                await server.stop(grace=0)


@pytest.fixture
def criu() -> Path:
    """The path of a CRIU that works on this host; without one the test is skipped."""
    return require_criu()
