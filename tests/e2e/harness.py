"""A cluster of real processes in a temporary directory, and the curves of the same trainings without a cluster."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from hopyard._common.environment import EVERYTHING
from hopyard.client import AsyncClient
from hopyard.client.local_cluster.embedded import agent_service, scheduler_service
from hopyard.client.local_cluster.processes import ServiceProcess
from hopyard.client.types import NodeState
from hopyard.spec import configuration_seed
from tests.timing import HANG_SECONDS

REPOSITORY = Path(__file__).parents[2]
SOFTMAX = Path(__file__).parent / "softmax"


def softmax_file(folder: Path, **changes: Any) -> Path:
    """Write a cheap experiment (`softmax/`) into a folder, with changed top-level fields; return its file.

    Environment variables of its agents slow it down until the file that SOFTMAX_ENOUGH names exists: SOFTMAX_PACE slows each
    iteration, SOFTMAX_HELD limits the positions of jobs, and SOFTMAX_LATE is the position from which iterations are slow.
    """
    return experiment_copy(SOFTMAX, folder, changes)


def experiment_copy(source: Path, folder: Path, changes: Mapping[str, Any], code: str = "train.py") -> Path:
    """Copy an experiment and its code to another folder, with changed top-level fields; return its file."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / code, folder / "train.py")
    spec = yaml.safe_load((source / "experiment.yaml").read_text())
    spec.update(changes)
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump(spec))
    return file


class Processes:
    """The services of one data directory: AppStat, hpgen and the scheduler in one process, and agents in their own."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.running: dict[str, ServiceProcess] = {}
        self.scheduler = ""

    async def start_scheduler(self, *options: str) -> str:
        """Start AppStat, hpgen and the scheduler with further command-line options; return the scheduler's address."""
        service = scheduler_service(self.data)
        service = replace(service, arguments=(*service.arguments, *options))
        process = self.running["scheduler"] = ServiceProcess(service, self.data / "logs")
        await process.start()
        self.scheduler = await process.ready(HANG_SECONDS)
        return self.scheduler

    async def start_agent(self, node: str, slots: int = 1, *options: str) -> None:
        """Start a node agent with further command-line options."""
        service = agent_service(self.data / node, self.scheduler, slots, node, pass_env=[EVERYTHING])
        service = replace(service, arguments=(*service.arguments, *options))
        process = self.running[node] = ServiceProcess(service, self.data / "logs")
        await process.start()
        await process.ready(HANG_SECONDS)

    async def stop(self) -> None:
        """Stop all services, agents first."""
        for name in sorted(self.running, key=lambda n: n == "scheduler"):
            await self.running[name].stop(60)
        self.running.clear()


@asynccontextmanager
async def cluster(data: Path, nodes: Mapping[str, int], *options: str) -> AsyncIterator[tuple[Processes, AsyncClient]]:
    """Context manager of a cluster with these nodes and numbers of slots, and a client; `options` are the scheduler's."""
    os.environ["PYTHONPATH"] = str(REPOSITORY)
    processes = Processes(data)
    try:
        await processes.start_scheduler(*options)
        for node, slots in nodes.items():
            await processes.start_agent(node, slots)
        async with AsyncClient(server=processes.scheduler) as client:
            await _up(client, nodes)  # An agent serves requests before its session with the scheduler begins.
            yield processes, client
    finally:
        await processes.stop()


async def _up(client: AsyncClient, nodes: Collection[str]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while sum(node.state is NodeState.UP for node in await client.nodes()) < len(nodes):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)


_ALONE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import train
from hopyard.local import fit
trainer, until, configurations, keep = json.loads(sys.argv[2])
for index, (hyperparameters, seed) in enumerate(configurations):
    kept = f"{keep}/{index}" if keep else None
    reports = fit(getattr(train, trainer), hyperparameters, until=until, seed=seed, snapshot_directory=kept, snapshot_every=until)
    print(json.dumps([[r.position, {k: v.hex() for k, v in r.metrics.items()}] for r in reports]))
"""

Curve = dict[int, dict[str, str]]
"""Metrics by position, as hexadecimal floats, so that they are compared bit for bit."""


def all_trained_alone(
    folder: Path, configurations: Sequence[Mapping[str, Any]], until: int, trainer: str, keep: Path | None = None
) -> list[Curve]:
    """Return the curve of each configuration, trained without a cluster and without interruption, in order.

    The last snapshot of each is saved in `keep`, in a folder named by the number of the configuration.
    """
    seeded = [(dict(one), configuration_seed(0, one)) for one in configurations]
    arguments = json.dumps([trainer, until, seeded, keep and str(keep)])
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    run = subprocess.run(
        [sys.executable, "-c", _ALONE, str(folder), arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **threads},
    )
    return [dict(json.loads(line)) for line in run.stdout.splitlines()[-len(configurations) :]]
