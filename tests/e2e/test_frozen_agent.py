"""Test of an agent that is stopped longer than its lease: its jobs move, its old attempts end, and the events show it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState, Job, NodeState
from tests.e2e.harness import REPOSITORY, all_trained_alone, softmax_file
from tests.e2e.services import Services
from tests.timing import HANG_SECONDS, scaled

LENGTH = 200
LEASE = str(scaled(8.0))


def events(server: str, *arguments: str) -> str:
    """Return the output of `hopyard events`."""
    command = [sys.executable, "-m", "hopyard.cli.main", "events", *arguments, "--server", server]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def running(pid: int) -> bool:
    """Return whether a process has not ended; a zombie counts as ended, because a stopped parent cannot reap it."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(HANG_SECONDS):
        while not condition():  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


async def job_where(client: AsyncClient, experiment: str, condition: Callable[[Job], bool]) -> Job:
    """Wait for a job that satisfies a condition, and return it."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            for job in await client.jobs(experiment):
                if condition(job):
                    return job
            await asyncio.sleep(0.05)


@pytest.mark.timeout(300)
async def test_a_frozen_agent_loses_its_job_and_is_told_so_when_it_thaws(tmp_path: Path) -> None:
    file = softmax_file(
        tmp_path / "e",
        stop={"jobs": 1, "max_iterations": LENGTH},
        snapshot={"provider": "framework", "every": 5},
    )
    enough = tmp_path / "enough"
    paced = {"SOFTMAX_PACE": "0.2", "SOFTMAX_ENOUGH": str(enough), "SOFTMAX_HELD": f"1:{LENGTH - 1}"}
    async with Services(tmp_path / "data") as services:
        appstat = await services.start("appstat", "appstat")
        hpgen = await services.start("hpgen", "hpgen")
        addresses = ("--appstat", appstat, "--hpgen", hpgen)
        server = await services.start("scheduler", "scheduler", *addresses, "--lease", LEASE, "--heartbeat", "0.5")

        async def start(node: str) -> None:
            options = ("--scheduler", server, "--node", node, "--slots", "1")
            await services.start(node, "nodeagent", *options, **paced)

        await start("cold")
        async with AsyncClient(server=server, patience=HANG_SECONDS) as client:
            experiment = (await client.create(file)).id
            job = await job_where(client, experiment, lambda j: j.slots == ("cold/0",) and j.position >= 7)
            await start("warm")
            (runner,) = [process.pid for process in psutil.Process(services.pid("cold")).children()]

            services.send("cold", signal.SIGSTOP)
            # Its agent has sent nothing for longer than the lease, so the runner has ended itself.
            await until(lambda: not running(runner))
            assert psutil.Process(services.pid("cold")).status() == psutil.STATUS_STOPPED
            moved = await job_where(client, experiment, lambda j: j.slots == ("warm/0",) and j.attempt > job.attempt)
            assert {node.id: node.state for node in await client.nodes()}["cold"] is NodeState.LOST

            services.send("cold", signal.SIGCONT)
            await until(lambda: "still has, is ended there" in events(server, experiment, job.id))
            async with asyncio.timeout(HANG_SECONDS):
                while {node.id: node.state for node in await client.nodes()}["cold"] is not NodeState.UP:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            assert not running(runner)
            enough.touch()
            ended = await client.wait(experiment, timeout=HANG_SECONDS)
            assert ended.state is ExperimentState.COMPLETED, ended.reason

            jobs = await client.jobs(experiment)
            assert [one.attempt for one in jobs] == [moved.attempt]
            alone = all_trained_alone(file.parent, [one.hyperparameters for one in jobs], LENGTH, "Softmax")
            for one, curve in zip(jobs, alone, strict=True):
                reports = [s.report for s in await client.statistics(experiment, one.id)]
                assert [r.position for r in reports] == list(range(1, LENGTH + 1))
                found = {r.position: {name: value.hex() for name, value in r.metrics.items()} for r in reports}
                assert found == curve
        story = [line.split("  ", 2)[-1] for line in events(server, experiment, job.id).splitlines()]
        lost = next(
            n
            for n, line in enumerate(story)
            if f"node cold is lost, so run {job.attempt} of job {job.id} was lost" in line
        )
        again = next(
            n
            for n, line in enumerate(story)
            if f"starts job {job.id} on warm/0" in line and f"attempt {moved.attempt}" in line
        )
        back = next(n for n, line in enumerate(story) if "which node cold still has, is ended there" in line)
        assert lost < again
        assert lost < back
        assert "its messages since then are refused" in story[back]
        assert "node cold is back with 1 run" in events(server, experiment)
