"""Starts clusters as users do, and measures what their processes use."""

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
"""Code folder of a trainer whose iterations do nothing."""

_POLL_SECONDS = 0.05
_PATIENCE_SECONDS = 600.0


@asynccontextmanager
async def embedded(data: Path, slots: int, **options: Any) -> AsyncIterator[tuple[EmbeddedCluster, AsyncClient]]:
    """Return a context with a cluster as `hopyard run` starts it, and a client of it.

    The services run in this process, and an agent with `slots` slots in another one.
    """
    cluster = EmbeddedCluster(data, slots=slots, purpose="a benchmark", **options)
    server = await cluster.start()
    try:
        async with AsyncClient(server=server, timeout=_PATIENCE_SECONDS) as client:
            yield cluster, client
    finally:
        await cluster.stop()


@asynccontextmanager
async def up(data: Path, agents: int, slots: int) -> AsyncIterator[tuple[ClusterServices, AsyncClient]]:
    """Return a context with a cluster as `hopyard up` starts it, and a client of it.

    Each service is a process, and so is each of the `agents` agents, which have `slots` slots each.
    """
    cluster = ClusterServices(data, agents=agents, slots=slots, note=lambda text: None)
    try:
        server = await cluster.start()
        async with AsyncClient(server=server) as client:
            yield cluster, client
    finally:
        await cluster.stop()


def noop_spec(jobs: int, iterations: int, **changes: Any) -> Mapping[str, Any]:
    """Return an experiment whose iterations do nothing. A job is saved at its end only. `changes` replace fields."""
    return {
        "name": "noop",
        "trainer": "train.py:Noop",
        "metric": {"name": "score", "mode": "max"},
        "space": {"x": {"uniform": [0.0, 1.0]}},
        "stop": {"jobs": jobs, "max_iterations": iterations},
        "snapshot": {"every": 1_000_000, "keep_best": 0},
    } | changes


async def ended(client: AsyncClient, experiment: Experiment, limit: float = 300.0) -> Experiment:
    """Return the experiment when it has completed. It is polled, because a watch would also stream its reports to this process.

    Raises:
        TimeoutError: It has not ended within `limit` seconds.
        RuntimeError: It ended in another state than COMPLETED.
    """
    end = time.monotonic() + limit
    while not (found := await client.get(experiment)).state.ended:
        if time.monotonic() > end:
            raise TimeoutError(f"experiment {found.id}: still {found.state.value} after {limit:g} s: {found.jobs}")
        await asyncio.sleep(_POLL_SECONDS)
    if found.state.value != "COMPLETED":
        raise RuntimeError(f"experiment {found.id}: {found.state.value}: {found.reason}")
    return found


def processes() -> list[psutil.Process]:
    """Return all descendants of this process."""
    return psutil.Process().children(recursive=True)


async def at_rest(limit: float = 60.0) -> None:
    """Wait until all descendants of this process use almost no CPU time, so that training processes have started and wait.

    Raises:
        TimeoutError: That takes longer than `limit` seconds.
    """
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
    """Return the CPU time of all descendants of this process in seconds, including ended ones whose parent has waited for them."""
    total = 0.0
    for process in processes():
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])
    return total


def memory() -> dict[str, tuple[int, int]]:
    """Return the proportional and the resident set size in bytes of each descendant of this process, by its name and id."""
    found = {}
    for process in processes():
        with suppress(psutil.NoSuchProcess):
            info = process.memory_full_info()
            found[f"{_called(process)} {process.pid}"] = info.pss, info.rss
    return found


def _called(process: psutil.Process) -> str:
    """Return a name for a process: the last of its arguments that is a module or command of Hopyard."""
    return next((part for part in reversed(process.cmdline()) if part.startswith("hopyard")), process.name())


def kill_all() -> None:
    """Kill all descendants of this process with SIGKILL, and wait until they have ended."""
    found = processes()
    for process in found:
        with suppress(psutil.NoSuchProcess):
            os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs(found, timeout=30)
