"""Tests of the JavaScript client: it submits an experiment, watches it up to its end, and acts on its jobs."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from hopyard._net.auth import CallerKind
from hopyard._net.auth.credentials import secrets_of
from hopyard._net.rpc.address import socket_file
from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, JobState
from tests.integration.policy_process.rig import ROOT, node_policy
from tests.integration.scheduler.conftest import address, client
from tests.timing import HANG_SECONDS

__all__ = ["address", "client", "node_policy"]

CLIENT = ROOT / "examples" / "node_client"


@pytest.mark.timeout(300)
async def test_the_example_does_what_it_says(
    node_policy: Path, address: str, client: AsyncClient, tmp_path: Path
) -> None:
    async def node(*arguments: str) -> asyncio.subprocess.Process:
        # Both examples use the same packages.
        environment = os.environ | {"NODE_PATH": str(node_policy / "node_modules")}
        pipe = asyncio.subprocess.PIPE
        command = ("node", str(CLIENT / "client.js"), "--server", address, *arguments)
        return await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)

    file = tmp_path / "experiment.yaml"  # Slow enough to act on jobs while it runs.
    file.write_text((CLIENT / "experiment.yaml").read_text().replace("sleep 0.2", "sleep 0.6"))
    submitting = await node("submit", str(file))
    assert submitting.stdout is not None
    name = (await submitting.stdout.readline()).decode().removeprefix("created ").strip()
    async with asyncio.timeout(HANG_SECONDS):
        while not any(job.position for job in await client.jobs(name)):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
    await client.pause_job(name, "4")  # The job cannot have ended, however long the next process takes to start.
    acting = await node("terminate", name, "4")
    said = await acting.communicate()
    assert (acting.returncode, said[0][:6]) == (0, b"job 4 "), said
    out, error = await submitting.communicate()
    assert submitting.returncode == 0, error
    lines = out.decode().splitlines()
    assert lines[-1].startswith("experiment COMPLETED")
    assert any(line.startswith("job 1 reported 8: ") for line in lines)
    assert any(line.startswith("job 4 TERMINATED") for line in lines)
    found = await client.get(name)
    assert found.state is ExperimentState.COMPLETED
    states = {job.id: job.state for job in await client.jobs(name)}
    assert states == {**dict.fromkeys("123", JobState.COMPLETED), "4": JobState.TERMINATED}
    wrong = await node("pause", name)
    assert (await wrong.communicate())[1].decode().startswith(f"error: experiment {name} is COMPLETED")
    assert wrong.returncode == 1


@pytest.mark.timeout(300)
async def test_it_sends_the_token_that_the_environment_names(node_policy: Path, address: str, tmp_path: Path) -> None:
    async def paused(**variables: str) -> str:
        command = ("node", str(CLIENT / "client.js"), "--server", f"unix:{tmp_path}/distant.sock", "pause", "nobody")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("HOPYARD_")}
        environment = inherited | {"NODE_PATH": str(node_policy / "node_modules"), **variables}
        process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=asyncio.subprocess.PIPE)
        error = (await process.communicate())[1].decode()
        assert (process.returncode, error.count("\n")) == (1, 1)
        return error

    (tmp_path / "distant.sock").symlink_to(socket_file(address))
    folder = secrets_of(address)
    assert folder is not None
    token, file = folder.token(CallerKind.USER), folder.token_file(CallerKind.USER)
    assert "error: there is no experiment 'nobody'" in await paused(HOPYARD_USER_TOKEN=token)
    assert "error: there is no experiment 'nobody'" in await paused(HOPYARD_USER_TOKEN_FILE=str(file))
    assert "error: this call needs a valid token" in await paused(HOPYARD_USER_TOKEN="wrong")
    assert "error: there is no token for unix:" in await paused()
