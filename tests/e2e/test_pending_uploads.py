"""Tests that a snapshot whose upload was not complete when its agent was killed is uploaded after the agent's restart."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hopyard._net.rpc.address import socket_file
from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, Job, JobState
from hopyard.v1 import appstat_pb2, appstat_pb2_grpc
from tests.access import channel_as
from tests.e2e.harness import softmax_file
from tests.e2e.services import Services
from tests.e2e.test_frozen_agent import events
from tests.timing import HANG_SECONDS


class Wire:
    """A TCP proxy to an address, which a test can cut; after that no connection works."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._cut = False
        self.address = ""

    @asynccontextmanager
    async def laid(self) -> AsyncIterator[Wire]:
        """Context manager that makes the proxy listen at `address`."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        self.address = f"{host}:{port}"
        try:
            yield self
        finally:
            self.cut()
            server.close()
            await server.wait_closed()

    def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._cut = True
        for writer in self._writers:
            writer.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._cut:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_unix_connection(socket_file(self._target))
        self._writers.add(far_writer)
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # The connection was cut.
        finally:
            writer.close()


async def in_store(appstat: str, sha256: str) -> bool:
    """Return whether AppStat has a blob."""
    async with channel_as("service", appstat) as opened:
        stub: appstat_pb2_grpc.AppStatServiceAsyncStub = appstat_pb2_grpc.AppStatServiceStub(opened)
        return sha256 in (await stub.HasBlobs(appstat_pb2.HasBlobsRequest(sha256=[sha256]))).sha256


async def the_job(client: AsyncClient, experiment: str) -> Job:
    """Wait for the experiment's only job and return it."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            if jobs := await client.jobs(experiment):
                return jobs[0]
            await asyncio.sleep(0.05)


async def test_what_a_killed_agent_had_not_shipped_is_shipped_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = softmax_file(
        tmp_path / "e",
        stop={"jobs": 1, "max_iterations": 2000},
        snapshot={"provider": "framework", "every": 2000},
        policy={"name": "default", "ahead": 0},
    )
    async with Services(tmp_path / "data") as services:
        appstat = await services.start("appstat", "appstat")
        # The agent reaches AppStat, which has another data folder than the scheduler, at a TCP port.
        monkeypatch.setenv("HOPYARD_NODE_TOKEN_FILE", str(tmp_path / "data" / "appstat" / "secrets" / "node.token"))
        hpgen = await services.start("hpgen", "hpgen")
        server = await services.start("scheduler", "scheduler", "--appstat", appstat, "--hpgen", hpgen)
        options = ("--scheduler", server, "--node", "n", "--slots", "1")
        async with Wire(appstat).laid() as wire, AsyncClient(server=server, patience=HANG_SECONDS) as client:
            await services.start("agent", "nodeagent", *options, "--appstat", wire.address, SOFTMAX_PACE="0.05")
            experiment = (await client.create(file)).id
            async with asyncio.timeout(HANG_SECONDS):
                while (await the_job(client, experiment)).position < 3:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)
            wire.cut()
            await client.pause(experiment)
            async with asyncio.timeout(HANG_SECONDS):
                while (job := await the_job(client, experiment)).state is not JobState.SUSPENDED:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            # The experiment waits for the snapshot that must survive the loss of the node.
            assert (await client.get(experiment)).state is ExperimentState.PAUSING
            local = job.snapshots[-1]
            assert not local.stored
            assert local.nodes == ("n",)
            assert not await in_store(appstat, local.sha256)

            services.send("agent", signal.SIGKILL)
            await services.running["agent"].wait()
            await services.start("agent", "nodeagent", *options, SOFTMAX_PACE="0.0")
            async with asyncio.timeout(HANG_SECONDS):
                while (await client.get(experiment)).state is not ExperimentState.PAUSED:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert await in_store(appstat, local.sha256)
            newest = (await the_job(client, experiment)).snapshots[-1]
            assert (newest.sha256, newest.position, newest.stored) == (local.sha256, local.position, True)
            story = events(server, experiment, "1")
            assert f"node n is ordered to upload the snapshot of job 1 at {local.position}" in story
            assert f"node n uploaded the snapshot of job 1 at {local.position}" in story
            await client.stop(experiment)
