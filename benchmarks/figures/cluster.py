"""Clusters as users start them, and what their processes use."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from hopyard.cli.commands.cluster.supervisor import ClusterServices
from hopyard.client import AsyncClient
from hopyard.client.local_cluster.embedded import EmbeddedCluster
from hopyard.client.types import Experiment

NOOP = Path(__file__).parent / "noop"
"""Code folder of a trainer that trains nothing."""

_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 600.0


@asynccontextmanager
async def embedded(data: Path, slots: int, **options: Any) -> AsyncIterator[tuple[EmbeddedCluster, AsyncClient]]:
    """What `hopyard run` starts: the services in one process, an agent with `slots` slots in another; and a client."""
    cluster = EmbeddedCluster(data, slots=slots, purpose="a benchmark", **options)
    server = await cluster.start()
    try:
        async with AsyncClient(server=server, timeout=_PATIENCE_SECONDS) as client:
            yield cluster, client
    finally:
        await cluster.stop()


@asynccontextmanager
async def up(data: Path, agents: int, slots: int) -> AsyncIterator[tuple[ClusterServices, AsyncClient]]:
    """What `hopyard up` starts: each service a process of its own, `agents` of them with `slots` slots; and a client."""
    cluster = ClusterServices(data, agents=agents, slots=slots, note=lambda text: None)
    try:
        server = await cluster.start()
        async with AsyncClient(server=server) as client:
            yield cluster, client
    finally:
        await cluster.stop()


def noop_spec(jobs: int, iterations: int, **changes: Any) -> Mapping[str, Any]:
    """An experiment of the trainer that trains nothing; a job is saved at its end only, and not by the way."""
    return {
        "name": "noop",
        "trainer": "train.py:Noop",
        "metric": {"name": "score", "mode": "max"},
        "space": {"x": {"uniform": [0.0, 1.0]}},
        "stop": {"jobs": jobs, "max_iterations": iterations},
        "snapshot": {"every": 1_000_000, "keep_best": 0},
    } | changes


async def ended(client: AsyncClient, experiment: Experiment, limit: float = 300.0) -> Experiment:
    """The experiment once it has completed. It is asked for now and then: a watch would stream its reports here, too."""
    end = time.monotonic() + limit
    while not (found := await client.get(experiment)).state.ended:
        if time.monotonic() > end:
            raise TimeoutError(f"experiment {found.id}: still {found.state.value} after {limit:g} s: {found.jobs}")
        await asyncio.sleep(_POLL_SECONDS)
    if found.state.value != "COMPLETED":
        raise RuntimeError(f"experiment {found.id}: {found.state.value}: {found.reason}")
    return found


def processes() -> list[psutil.Process]:
    """All processes that this one started, and theirs."""
    return psutil.Process().children(recursive=True)


async def at_rest(limit: float = 60.0) -> None:
    """Returns when all processes that this one started have next to nothing to do: training processes are up and wait."""
    end = time.monotonic() + limit
    before = cpu_seconds()
    while time.monotonic() < end:
        await asyncio.sleep(0.5)
        now = cpu_seconds()
        if now - before < 0.05:
            return
        before = now
    raise TimeoutError(f"the cluster does not come to rest within {limit:g} s")


def cpu_seconds() -> float:
    """CPU time of all processes that this one started and theirs, those that have ended included as far as they were awaited."""
    total = 0.0
    for process in processes():
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def memory() -> dict[str, tuple[int, int]]:
    """Proportional and resident set size in bytes of each process that this one started, by its name and id."""
    found = {}
    for process in processes():
        with suppress(psutil.NoSuchProcess):
            info = process.memory_full_info()
            found[f"{_called(process)} {process.pid}"] = info.pss, info.rss
    return found


def _called(process: psutil.Process) -> str:
    """What it runs: the last of its arguments that is a module or a command of Hopyard's."""
    return next((part for part in reversed(process.cmdline()) if part.startswith("hopyard")), process.name())


def kill_all() -> None:
    """Ends all processes that this one started, and theirs, as `kill -9` does; returns when they are gone."""
    found = processes()
    for process in found:
        with suppress(psutil.NoSuchProcess):
            os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(found, timeout=30)
