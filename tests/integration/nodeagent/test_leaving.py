"""Tests of an agent process that stops in order: it announces that, suspends its runs, stores their snapshots, and ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from pathlib import Path

import pytest

from hopyard.policy.vocabulary import RunKey, StreamId
from hopyard.v1 import common_pb2
from hopyard.v1 import resource_manager_pb2 as wire
from tests.integration.nodeagent.cluster import Cluster, gone
from tests.timing import HANG_SECONDS, scaled

KEY, OTHER, GANG = (RunKey(StreamId("e1"), job, 1, 0) for job in ("j1", "j2", "j3"))


async def start_agent(cluster: Cluster, grace: float) -> Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hopyard_nodeagent",
        "--scheduler", cluster.scheduler_address,
        "--appstat", cluster.store_address,
        "--data", str(cluster.folder / "a"),
        "--node", "a",
        "--slots", "3",
        "--cpus-per-slot", "1",
        "--grace", f"{grace:g}",
    )  # fmt: skip
    cluster.processes.append(process)
    await cluster.scheduler.connected("a")
    return process


async def left(process: Process) -> int:
    async with asyncio.timeout(HANG_SECONDS):
        return await process.wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_agent_leaves_when_its_run_is_suspended_and_stored(cluster: Cluster, number: signal.Signals) -> None:
    scheduler = cluster.scheduler
    scheduler.releases = False
    process = await start_agent(cluster, 10 * HANG_SECONDS)
    cluster.start(KEY, allowed=2)
    await scheduler.reported(KEY, 2)
    process.send_signal(number)
    await scheduler.until(lambda: scheduler.leaving == ["a"])
    cluster.start(OTHER, slot=1)  # Sent before the scheduler got the announcement.
    cluster.start(GANG, slot=2, world=2)
    assert (await scheduler.ended(OTHER)).reason == common_pb2.RUN_END_REASON_SUSPENDED
    assert (await scheduler.ended(GANG)).reason == common_pb2.RUN_END_REASON_LOST
    assert not any(message.HasField("started") for message in scheduler.received[OTHER])
    scheduler.decide("a", KEY, wire.DECISION_SUSPEND, 2)
    ended = await scheduler.ended(KEY)
    assert ended.reason == common_pb2.RUN_END_REASON_SUSPENDED
    await scheduler.until(lambda: any(message.HasField("snapshot_stored") for message in scheduler.received[KEY]))
    assert ended.snapshot.sha256 in cluster.store.blobs
    assert process.returncode is None  # It waits for the scheduler, which may order further uploads.
    scheduler.say("a", released=wire.AgentReleased())
    assert await left(process) == 0


async def test_an_agent_says_in_its_next_session_that_it_is_leaving(cluster: Cluster) -> None:
    scheduler = cluster.scheduler
    scheduler.releases = False
    process = await start_agent(cluster, 10 * HANG_SECONDS)
    cluster.start(KEY, allowed=1)
    await scheduler.reported(KEY, 1)
    process.send_signal(signal.SIGTERM)
    await scheduler.until(lambda: scheduler.leaving == ["a"])
    scheduler.releases = True
    scheduler.drop_session("a")
    assert await left(process) == 0
    assert [hello.leaving for hello in scheduler.hellos["a"]] == [False, True]


async def test_what_is_left_after_the_grace_is_lost(cluster: Cluster) -> None:
    scheduler = cluster.scheduler
    scheduler.releases = False
    process = await start_agent(cluster, scaled(0.5))
    cluster.start(KEY, hyperparameters={"fail": "hang", "at": 2}, allowed=9)
    pid = int((await scheduler.reported(KEY, 1)).metrics["pid"])
    process.send_signal(signal.SIGTERM)
    assert await left(process) == 0
    await gone(pid)
    assert (await scheduler.ended(KEY)).reason == common_pb2.RUN_END_REASON_LOST


@pytest.mark.parametrize("busy", [True, False])
async def test_an_agent_whose_scheduler_is_away_ends_before_its_grace(cluster: Cluster, busy: bool) -> None:
    scheduler = cluster.scheduler
    process = await start_agent(cluster, 10 * HANG_SECONDS)
    pid = 0
    if busy:
        cluster.start(KEY, hyperparameters={"fail": "hang", "at": 2}, allowed=9)
        pid = int((await scheduler.reported(KEY, 1)).metrics["pid"])
    scheduler.away = True
    scheduler.drop_session("a")
    process.send_signal(signal.SIGTERM)
    assert await left(process) == 0
    if busy:
        await gone(pid)


async def test_a_second_signal_ends_it_at_once(cluster: Cluster) -> None:
    scheduler = cluster.scheduler
    scheduler.releases = scheduler.acknowledge = False
    process = await start_agent(cluster, 10 * HANG_SECONDS)
    cluster.start(KEY, hyperparameters={"fail": "hang", "at": 2}, allowed=9)
    pid = int((await scheduler.reported(KEY, 1)).metrics["pid"])
    process.send_signal(signal.SIGTERM)
    await scheduler.until(lambda: scheduler.leaving == ["a"])
    process.send_signal(signal.SIGTERM)
    assert await left(process) == 130
    await gone(pid)


async def test_a_grace_that_is_no_time_is_refused(cluster: Cluster) -> None:
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("hopyard")), "agent", "--scheduler", cluster.scheduler_address),
        *("--data", str(cluster.folder / "b"), "--grace", "soon"),
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    assert process.returncode == 2
    assert b"--grace: needs a length of time such as 30s" in said
    assert b"Traceback" not in said
