"""Tests that services which stall longer than the lease of nodes, and cut and slow connections, change no result and lose no node."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from disturbance.proxy import Direction, Proxy

from hopyard._net.rpc.address import SOCKET_SCHEME, socket_file
from hopyard.client import AsyncClient
from hopyard.client.types import ExperimentState
from tests.e2e.harness import all_trained_alone, softmax_file
from tests.e2e.services import Services
from tests.e2e.test_frozen_agent import events, job_where
from tests.timing import HANG_SECONDS, scaled

LENGTH = 60
LEASE = scaled(3.0)
SHORT = 2 * LEASE
"""Duration of a stall in seconds: longer than the lease."""

DIRECTIONS = {"to": Direction.FORWARD, "from": Direction.BACKWARD, "both": Direction.BOTH}


class Deployment:
    """Services as processes, with a proxy on each connection: scheduler to AppStat, scheduler to hpgen, agent to both."""

    def __init__(self, data: Path, services: Services, stack: AsyncExitStack) -> None:
        self.services = services
        self.enough = data / "enough"
        self.proxies: dict[str, Proxy] = {}
        self._stack = stack
        self._paced = {"SOFTMAX_PACE": "0.05", "SOFTMAX_ENOUGH": str(self.enough), "SOFTMAX_HELD": f"1:{LENGTH - 1}"}

    async def start(self) -> str:
        """Start the services and an agent with two slots, and return the address of the scheduler."""
        start = self.services.start
        appstat = await start("appstat", "appstat")
        hpgen = await start("hpgen", "hpgen")
        near = await self._proxy("scheduler-appstat", appstat), await self._proxy("scheduler-hpgen", hpgen)
        leases = ("--lease", str(LEASE), "--heartbeat", str(LEASE / 10))
        server = await start("scheduler", "scheduler", "--appstat", near[0], "--hpgen", near[1], *leases)
        far = await self._proxy("agent-scheduler", server), await self._proxy("agent-appstat", appstat)
        options = ("--scheduler", far[0], "--appstat", far[1], "--node", "n", "--slots", "2")
        await start("n", "nodeagent", *options, **self._paced)
        return server

    async def _proxy(self, name: str, service: str) -> str:
        # Beside the socket of the service, so that clients find its tokens.
        listen = f"{SOCKET_SCHEME}{socket_file(service).with_name(name)}.sock"
        made = self.proxies[name] = await self._stack.enter_async_context(Proxy(service, listen))
        return made.address

    async def disturb(self, what: str, seconds: float) -> None:
        """Stop a service ("stop scheduler"), or cut or delay a connection ("cut to scheduler-appstat"), for some seconds.

        A cut loses nothing: what it has held back comes later, unless the connection is also reset.
        """
        kind, *directions, name = what.split()
        proxy = self.proxies.get(name)
        if kind == "stop":
            self.services.send(name, signal.SIGSTOP)
        elif kind == "slow":
            assert proxy is not None
            proxy.delay(0.2)
        else:
            assert proxy is not None
            (direction,) = (DIRECTIONS[one] for one in directions or ["both"])
            proxy.drop(direction)
            if kind == "reset":
                proxy.cut()
        await asyncio.sleep(seconds)  # The duration of the stall itself: nothing can be waited for.
        if proxy is None:
            self.services.send(name, signal.SIGCONT)
        else:
            proxy.heal()


MERGE = ["stop scheduler", "stop appstat", "cut scheduler-appstat", "cut from agent-scheduler"]
NIGHTLY = [
    "stop hpgen",
    "cut to scheduler-appstat",
    "cut from scheduler-appstat",
    "slow scheduler-appstat",
    "reset scheduler-appstat",
    "cut scheduler-hpgen",
    "cut from scheduler-hpgen",
    "cut agent-appstat",
    "cut to agent-appstat",
    "cut agent-scheduler",
    "cut to agent-scheduler",
    "reset agent-scheduler",
]


async def check(tmp_path: Path, what: str, seconds: float) -> None:
    """Disturb a search while it trains, and check its events and results."""
    file = softmax_file(
        tmp_path / "e", stop={"jobs": 3, "max_iterations": LENGTH}, snapshot={"provider": "framework", "every": 5}
    )
    async with AsyncExitStack() as stack, Services(tmp_path / "data") as services:
        deployment = Deployment(tmp_path, services, stack)
        server = await deployment.start()
        async with AsyncClient(server=server, patience=HANG_SECONDS, timeout=HANG_SECONDS) as client:
            experiment = (await client.create(file)).id
            await job_where(client, experiment, lambda job: job.position >= 7)
            await deployment.disturb(what, seconds)
            deployment.enough.touch()
            ended = await client.wait(experiment, timeout=HANG_SECONDS)
            assert ended.state is ExperimentState.COMPLETED, ended.reason
            jobs: list[Any] = list(await client.jobs(experiment))
            told = await asyncio.to_thread(events, server, experiment)  # The proxies are in this process.
            if "agent-scheduler" not in what:  # The node was connected all the time.
                assert "is lost" not in told
                assert [job.attempt for job in jobs] == [1, 1, 1]
            values = [job.hyperparameters for job in jobs]
            alone = await asyncio.to_thread(all_trained_alone, file.parent, values, LENGTH, "Softmax")
            for job, curve in zip(jobs, alone, strict=True):
                reports = [statistic.report for statistic in await client.statistics(experiment, job.id)]
                assert [report.position for report in reports] == list(range(1, LENGTH + 1))
                found = {r.position: {name: value.hex() for name, value in r.metrics.items()} for r in reports}
                assert found == curve


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", [*MERGE, *(pytest.param(one, marks=pytest.mark.nightly) for one in NIGHTLY)])
async def test_a_stall_or_a_cut_longer_than_the_lease_changes_no_result(tmp_path: Path, what: str) -> None:
    await check(tmp_path, what, SHORT)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", ["stop scheduler", "stop appstat", "stop hpgen", "cut scheduler-appstat"])
async def test_a_minute_without_a_service_changes_no_result(tmp_path: Path, what: str) -> None:
    await check(tmp_path, what, 60.0)
