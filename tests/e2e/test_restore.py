"""Tests of restores from backups: what was trained since is trained again, and the tables are those of an undisturbed run."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hopyard._common.environment import EVERYTHING
from hopyard.client import AsyncClient, Client
from hopyard.client.local_cluster.embedded import agent_service
from hopyard.client.local_cluster.processes import ServiceProcess
from tests.e2e import kills
from tests.e2e.harness import Processes, cluster, softmax_file
from tests.timing import HANG_SECONDS

SEED = int(os.environ.get("RESTORE_SEED", "1"))
"""Seed of the moments of the backups; a failure report names it."""

JOBS, LENGTH, SLOTS = 10, 12, 2
PACE = "0.25"
"""Seconds of an iteration before the restore. After it, a file makes the training fast (`softmax_file`)."""
SPEC: dict[str, Any] = {
    "policy": {"name": "default"},
    "stop": {"jobs": JOBS, "max_iterations": LENGTH},
    "snapshot": {"every": 2},
}

Tables = tuple[list[Any], dict[str, Any]]


class Agent:
    """An agent whose folder is outside of the data directory of its cluster, so that it survives the loss of that directory."""

    def __init__(self, folder: Path, server: str) -> None:
        service = agent_service(folder, server, SLOTS, "n", pass_env=[EVERYTHING])
        self._process = ServiceProcess(replace(service, name="n"), folder.parent / "agent-logs")
        self.log = folder.parent / "agent-logs" / "n.log"

    async def start(self) -> None:
        """Start the agent, and wait until it serves."""
        await self._process.start()
        await self._process.ready(HANG_SECONDS)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process.pid is not None
        return self._process.pid

    async def kill(self) -> None:
        """Kill the agent."""
        os.kill(self.pid, signal.SIGKILL)
        await self._process.wait()

    async def stop(self) -> None:
        """Stop the agent in order, if it runs."""
        if self._process.running:
            await self._process.stop(60)


async def undisturbed(folder: Path) -> Tables:
    """Return the table and the curves of an undisturbed run."""
    async with cluster(folder / "undisturbed", {"a": SLOTS}) as (processes, client):
        experiment = (await client.create(softmax_file(folder / "e", **SPEC))).id
        return await tables(processes.scheduler, experiment)


async def tables(server: str, experiment: str) -> Tables:
    """Wait for the end of an experiment, and return its table and its curves."""

    def read() -> Tables:
        with Client(server=server) as client:
            ended = client.wait(experiment, timeout=HANG_SECONDS)
            return kills.table(client, ended), kills.curves(client, ended)

    return await asyncio.to_thread(read)


async def reports(client: AsyncClient, experiment: str) -> int:
    """Return the sum of the positions that the jobs have reached."""
    return sum(job.position for job in await client.jobs(experiment))


async def trained(client: AsyncClient, experiment: str, least: int) -> None:
    """Wait until the jobs have trained this many iterations together."""
    async with asyncio.timeout(HANG_SECONDS):
        while await reports(client, experiment) < least:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


async def kill_services(processes: Processes) -> None:
    """Kill the process of AppStat, hpgen and the scheduler."""
    process = processes.running.pop("scheduler")
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()


async def command(*arguments: object) -> str:
    """Run a command that must succeed, and return its output."""
    return await asyncio.to_thread(kills.command, *map(str, arguments))


@pytest.mark.timeout(400)
async def test_an_agent_that_ran_on_discards_what_the_restored_cluster_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = await undisturbed(tmp_path)
    data, target = tmp_path / "data", tmp_path / "backups"
    monkeypatch.setenv("SOFTMAX_PACE", PACE)
    monkeypatch.setenv("SOFTMAX_ENOUGH", str(tmp_path / "enough"))
    processes = Processes(data)
    server = await processes.start_scheduler()
    agent = Agent(tmp_path / "node", server)
    try:
        await agent.start()
        pid = agent.pid
        async with AsyncClient(server=server) as client:
            experiment = (await client.create(softmax_file(tmp_path / "e", **SPEC))).id
            await trained(client, experiment, LENGTH)
            await command("backup", "create", target, "--data", data)
            at_backup = await reports(client, experiment)
            # Long enough for further attempts, whose numbers the restored cluster gives to other runs.
            await trained(client, experiment, at_backup + 2 * LENGTH + SLOTS)
        await kill_services(processes)
        shutil.rmtree(data)
        await command("restore", target, "--data", data)
        (tmp_path / "enough").touch()
        assert await processes.start_scheduler() == server
        assert await tables(server, experiment) == expected
        assert agent.pid == pid
        story = await command("events", experiment, "--server", server)
        assert re.search(
            r"restored from a backup while node n kept running, so run \d+ of job \d+ is ended there, and its reports since",
            story,
        )
        said = (data / "logs" / "scheduler.log").read_text()
        assert (
            "node n ran on while this cluster was restored from a backup; its runs are discarded with their messages"
            in said
        )
        told = agent.log.read_text()
        assert "the cluster was restored from a backup; all runs are ended" in told
        assert re.search(r"run \d+ of job \d+ of experiment \S+ is discarded", told)
        replayed = kills.replayed(server, (await one(server, experiment)))
        assert replayed["decisions_equal"] is True
    finally:
        await agent.stop()
        await processes.stop()


async def one(server: str, experiment: str) -> Any:
    """Return an experiment."""
    async with AsyncClient(server=server) as client:
        return await client.get(experiment)


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "runs", [pytest.param(2, id="2 runs"), pytest.param(20, id="20 runs", marks=pytest.mark.nightly)]
)
async def test_tables_after_a_restore_are_those_of_the_undisturbed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    expected = await undisturbed(tmp_path)
    rng = random.Random(SEED)
    monkeypatch.setenv("SOFTMAX_PACE", PACE)
    for number in range(runs):
        moment = rng.randrange(JOBS * LENGTH // 2)
        monkeypatch.setenv("SOFTMAX_ENOUGH", str(tmp_path / f"enough{number}"))
        found = await restored(tmp_path / f"run{number}", moment, tmp_path / f"enough{number}")
        assert found == expected, f"seed {SEED}, run {number}: backup after {moment} iterations"


async def restored(folder: Path, moment: int, enough: Path) -> Tables:
    """Make a backup after some iterations, delete everything, restore it, and return the tables at the end of the experiment.

    The file `enough` makes the training fast.
    """
    data, target = folder / "data", folder / "backups"
    processes = Processes(data)
    try:
        await processes.start_scheduler()
        agent = Agent(folder / "node", processes.scheduler)
        await agent.start()
        try:
            async with AsyncClient(server=processes.scheduler) as client:
                experiment = (await client.create(softmax_file(folder / "e", **SPEC))).id
                await trained(client, experiment, moment)
                await command("backup", "create", target, "--data", data)
            await kill_services(processes)
        finally:
            await agent.kill()
        shutil.rmtree(data)
        shutil.rmtree(folder / "node")
        await asyncio.to_thread(enough.touch)
        await command("restore", target, "--data", data)
        await processes.start_scheduler()
        agent = Agent(folder / "node", processes.scheduler)
        await agent.start()
        try:
            return await tables(processes.scheduler, experiment)
        finally:
            await agent.stop()
    finally:
        await processes.stop()
