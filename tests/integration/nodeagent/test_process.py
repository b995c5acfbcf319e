"""Tests of the agent as a process: `python -m hopyard_nodeagent`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process

import pytest

from hopyard._net.server import read_address
from hopyard.policy.vocabulary import RunKey, StreamId
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.timing import scaled

KEY = RunKey(StreamId("e1"), "j1", 1, 0)


async def start_agent(cluster: Cluster, *, sessions: int = 1) -> Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hopyard_nodeagent",
        "--scheduler", cluster.scheduler_address,
        "--appstat", cluster.store_address,
        "--data", str(cluster.folder / "a"),
        "--node", "a",
        "--slots", "2",
        "--cpus-per-slot", "1",
    )  # fmt: skip
    cluster.processes.append(process)
    await cluster.scheduler.connected("a", sessions)
    return process


async def test_a_killed_agent_leaves_no_runner_and_comes_back_with_its_snapshots(cluster: Cluster) -> None:
    process = await start_agent(cluster)
    scheduler = cluster.scheduler
    cluster.start(KEY, allowed=3, snapshot_at=[2], hyperparameters={"fail": "hang", "at": 4})
    pid = int((await scheduler.reported(KEY, 3)).metrics["pid"])
    # Its runner hangs inside an iteration, or waits; in both cases it ends with its agent.
    process.kill()
    await process.wait()
    await gone(pid)
    again = await start_agent(cluster, sessions=2)
    first, second = scheduler.hellos["a"]
    assert first.incarnation != second.incarnation
    assert list(second.runs) == []
    assert list(second.snapshots) == [scheduler.snapshots(KEY)[0].sha256]
    again.send_signal(signal.SIGTERM)
    assert await again.wait() == 0


async def test_sigterm_stops_in_order(cluster: Cluster) -> None:
    process = await start_agent(cluster)
    scheduler = cluster.scheduler
    assert read_address(cluster.folder / "a", "agent") == scheduler.hellos["a"][0].address
    assert [slot.id for slot in scheduler.hellos["a"][0].slots] == ["a/0", "a/1"]
    cluster.start(KEY, hyperparameters={"fail": "hang", "at": 2}, allowed=9)
    pid = int((await scheduler.reported(KEY, 1)).metrics["pid"])
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0
    await gone(pid)
    assert "node a stops" in (await scheduler.ended(KEY)).message
    assert not (cluster.folder / "a" / "agent.address").exists()


async def test_an_agent_whose_name_is_taken_ends_and_says_so(cluster: Cluster) -> None:
    process = await start_agent(cluster)
    cluster.scheduler.occupied.add("b")
    second = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hopyard_nodeagent", "--scheduler", cluster.scheduler_address),
        *("--data", str(cluster.folder / "b"), "--node", "b"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await second.communicate()
    assert second.returncode == 1
    assert b"agent: node b is alive elsewhere" in said
    assert b"Traceback" not in said
    process.terminate()
    await process.wait()


async def test_a_data_folder_has_one_agent_at_a_time_and_one_name_for_ever(cluster: Cluster) -> None:
    process = await start_agent(cluster)
    second = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hopyard_nodeagent", "--scheduler", cluster.scheduler_address),
        *("--data", str(cluster.folder / "a"), "--node", "b"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await second.communicate()
    assert second.returncode == 1
    assert f"another agent (process {process.pid}) uses this data folder; stop it".encode() in said
    assert b"Traceback" not in said
    process.kill()
    await process.wait()
    again = await start_agent(cluster, sessions=2)
    first, last = cluster.scheduler.hellos["a"]
    assert first.home == last.home != ""
    again.terminate()
    await again.wait()


async def test_a_runner_whose_agent_is_frozen_stops_itself(cluster: Cluster) -> None:
    cluster.scheduler.lease_seconds = scaled(8.0)  # Long enough for an agent that sends a heartbeat each second.
    process = await start_agent(cluster)
    cluster.start(KEY, hyperparameters={"seconds": 0.02}, allowed=100_000)
    pid = int((await cluster.scheduler.reported(KEY, 2)).metrics["pid"])
    process.send_signal(signal.SIGSTOP)
    try:
        await gone(pid)
    finally:
        process.send_signal(signal.SIGCONT)
    process.terminate()
    await process.wait()


@pytest.mark.parametrize("missing", ["HOPYARD_AGENT_PID"])
async def test_a_runner_is_not_started_by_hand(missing: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != missing}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hopyard._runtime.runner", env=environment, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"a runner is started by a node agent" in said
